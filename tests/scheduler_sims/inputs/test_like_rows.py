"""Rows whose shape is known are read to what the full check reads."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulator_runtime.domain.errors import InputError
from scheduler_sims.inputs.like_rows import Likes
from scheduler_sims.inputs.workload import load_workload

HEADER = "job_id,user,submit_s,num_gpus,cpus,gpu_duration_s,cpu_duration_s,steps,fetch_s,speedup,best_cpus,host_s,model"
cells = st.tuples(
    st.sampled_from(["", "ann", " bob ", "\x07"]),
    st.sampled_from(["", "0", "1.5", "-1", "1e3", "nan", "x"]),
    st.sampled_from(["", "1", "2"]),
    st.sampled_from(["", "4"]),
    st.sampled_from(["", "10", " 2.5 ", "0", "1e9", "1_0"]),
    st.sampled_from(["", "", "20"]),
    st.sampled_from(["", "5", "0", "007", "1.5"]),
    st.sampled_from(["", "", "0.5"]),
    st.sampled_from(["", "", "", "2"]),
    st.sampled_from(["", "", "6"]),
    st.sampled_from(["", "", "", "0.1"]),
    st.sampled_from(["", "", "", "", "synergy/gnmt"]),
)


@pytest.fixture
def load(reader):
    return reader(load_workload, "jobs.csv")


def outcome(load, text):
    try:
        workload = load(text)
    except InputError as error:
        return str(error)
    return workload.jobs, workload.lines


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(cells, min_size=1, max_size=6), twice=st.booleans())
def test_what_is_read_fast_is_what_is_read_in_full(load, rows, twice):
    rows = rows * 2 if twice else rows
    text = "\n".join([HEADER, *(f"j{n},{','.join(row)}" for n, row in enumerate(rows))])
    fast = outcome(load, text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Likes, "job", lambda *_: None)
        assert outcome(load, text) == fast


def test_a_known_shape_shares_its_configurations(load):
    one, two, three = load("job_id,gpu_duration_s,num_gpus\na,1,2\nb,2.5,2\nc,2,4\n").jobs
    assert one.configurations is two.configurations
    assert two.work["gpu"].duration_s == 2.5
    assert three.configurations[0].gpus == 4


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("b,nan,2", "jobs.csv:3: gpu_duration_s: must be a number"),
        ("b,2", "jobs.csv:3: has 1 cells too few"),
        (",2,2", "jobs.csv:3: job_id: is missing"),
        ("a,2,2", "jobs.csv:3: job_id 'a' is used twice, first in line 2"),
        ('"b,2,2', "jobs.csv:3: not CSV"),
    ],
)
def test_a_bad_row_of_a_known_shape_is_refused_like_a_first_one(load, tmp_path, second, message):
    with pytest.raises(InputError) as caught:
        load(f"job_id,gpu_duration_s,num_gpus\na,1,2\n{second}\n")
    assert str(caught.value).removeprefix(f"{tmp_path}/").startswith(message)
