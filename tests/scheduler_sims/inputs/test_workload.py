from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator_runtime.domain.errors import InputError, UnknownNameError
from emulator_runtime.domain.job import ModelWork, TimedWork
from emulator_runtime.domain.mig import profile_of
from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.domain.stages import StageTimes
from emulator_runtime.domain.units import GIB, to_ns
from emulator_runtime.workloads.step_costs.work import step_times
from scheduler_sims.inputs.table_file import csv_cells
from scheduler_sims.inputs.workload import COLUMNS, DEFAULT_STEPS, load_workload

LAST_K80_BATCH = 126  # resnet50 was measured at 1 to 126 on a Tesla_K80


@pytest.fixture
def load(reader):
    return reader(load_workload, "jobs.csv")


def row(**cells):
    """A workload of one job, on line 2."""
    given = {"job_id": "a", "gpu_duration_s": "10", **cells}
    return ",".join(given) + "\n" + ",".join(given.values()) + "\n"


def model_row(**cells):
    given = {"job_id": "a", "model": "resnet50", "batch_size": "16", "steps": "20", **cells}
    return ",".join(given) + "\n" + ",".join(given.values()) + "\n"


# --- what is read -------------------------------------------------------------------------------------------------------


def test_a_row_of_durations(load):
    header = (
        "job_id,user,submit_s,num_gpus,gpu_type,cpus,memory_gib,gpu_memory_gib,gpu_duration_s,cpu_duration_s,cpu_cpus"
    )
    job = load(f"{header},steps,weight\na,ann,1.5,2,V100 | T4,4,8,3,10,30,16,50,2\n").jobs[0]
    assert (job.job_id, job.user, job.submit_s, job.steps, job.weight, job.row) == ("a", "ann", 1.5, 50, 2.0, 0)
    on_gpu, on_cpu = job.configurations
    assert (on_gpu.name, on_gpu.gpus, on_gpu.cpu_milli, on_gpu.memory_bytes) == ("gpu", 2, 4000, 8 * GIB)
    assert (on_gpu.gpu_types, on_gpu.device_memory_bytes) == (("Tesla_V100-PCIE-32GB", "Tesla-T4"), 3 * GIB)
    assert (on_cpu.name, on_cpu.gpus, on_cpu.cpu_milli, on_cpu.memory_bytes) == ("cpu", 0, 16000, 8 * GIB)
    assert job.work == {"gpu": TimedWork(10.0), "cpu": TimedWork(30.0)}


def test_what_is_left_out_has_defaults(load):
    job = load("job_id,gpu_duration_s\na,10\n").jobs[0]
    assert (job.user, job.submit_s, job.steps, job.weight) == ("user", 0.0, DEFAULT_STEPS, 1.0)
    assert job.configurations[0].gpus == 1
    assert job.configurations[0].cpu_milli == 1000
    assert job.configurations[0].gpu_types is None


def test_a_job_may_run_on_cpus_only(load):
    job = load("job_id,cpu_duration_s\na,10\n").jobs[0]
    assert [c.name for c in job.configurations] == ["cpu"]


def test_a_model_beside_a_duration_is_a_label(load):
    job = load(row(model="anything")).jobs[0]
    assert job.work == {"gpu": TimedWork(10.0)}


def test_byte_order_mark_crlf_spaces_blank_lines_and_quotes_do_not_matter(load):
    plain = load("job_id,user,gpu_duration_s\na,ann,1\nb,bob,2\n").jobs
    assert load(b"\xef\xbb\xbfjob_id,user,gpu_duration_s\r\na,ann,1\r\n\r\nb,bob,2\r\n").jobs == plain
    assert load('# two jobs\njob_id , user,gpu_duration_s\n"a", ann ,1\n\n# b\nb,"bob",2').jobs == plain


@pytest.mark.parametrize("character", ["\u2028", "\u202e", "\x1b", "\x00"])
def test_characters_that_cannot_be_shown_are_refused_and_end_no_line(refused, character):
    told = refused(f"job_id,gpu_duration_s\na{character}b,1\n")
    assert told.startswith("jobs.csv:2: job_id: has characters that can't be shown: ")
    assert character not in told


def test_quoted_commas_and_quotes_belong_to_the_cell(load):
    assert load('job_id,gpu_duration_s\n"a,""b""",1\n').jobs[0].job_id == 'a,"b"'


@settings(deadline=None)
@given(cells=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n")), min_size=2))
def test_any_quoted_cells_survive(cells):
    line = ",".join('"' + cell.replace('"', '""') + '"' for cell in cells)
    assert csv_cells("jobs.csv:1", line) == cells


# --- cells that are wrong -----------------------------------------------------------------------------------------------

DURATIONS, CPUS = ("gpu_duration_s", "cpu_duration_s"), ("cpus", "cpu_cpus")
NUMBERS = ("submit_s", "memory_gib", "gpu_memory_gib", "weight", *DURATIONS, *CPUS)


@pytest.mark.parametrize("column", NUMBERS)
@pytest.mark.parametrize("text", ["-1", "nan", "inf", "-inf", "1e13", "ten", "1;2", "0x10"])
def test_a_cell_that_is_no_number_is_named(refused, column, text):
    told = refused(row(**{"cpu_duration_s": "5", column: text}))
    assert told.startswith(f"jobs.csv:2: {column}: must be a number from ")
    assert told.endswith(f"to 1e+08, not {text!r}")


@pytest.mark.parametrize("column", [*DURATIONS, *CPUS, "weight"])
@pytest.mark.parametrize("text", ["0", "0.0", "1e-10"])
def test_some_numbers_must_be_above_zero(refused, column, text):
    cells = {"cpu_duration_s": "5", column: text}
    assert refused(row(**cells)).startswith(f"jobs.csv:2: {column}: must be a number from ")


@pytest.mark.parametrize("column", ["num_gpus", "steps"])
@pytest.mark.parametrize("text", ["0", "-1", "1.5", "nan", "many", "1e3", "9" * 13, "²"])
def test_a_cell_that_is_no_whole_number_is_named(refused, column, text):
    told = refused(row(**{column: text}))
    assert told == f"jobs.csv:2: {column}: must be a whole number from 1 to 1000000000000, not {text!r}"


@pytest.mark.parametrize("column", ["num_gpus", "steps", "gpu_duration_s", "model", "gpu_type"])
@pytest.mark.parametrize("digit", ["9", "-9", "x"])
def test_a_long_cell_is_cut(refused, column, digit):
    cells = {"num_gpus": "1", column: digit * 5_000}
    if column == "model":
        cells |= {"gpu_duration_s": ""}
    assert digit * 60 not in refused(row(**cells))


def test_zeros_in_front_do_not_count(load):
    assert load(row(steps=f"{7:05000}")).jobs[0].steps == 7


def test_the_lines_of_jobs_are_known(load):
    assert load("# one\njob_id,gpu_duration_s\n\na,1\n# two\nb,1\n").lines == (4, 6)


@pytest.mark.parametrize("text", ["0", "x", "2.5"])
def test_a_batch_size_is_a_whole_number(refused, text):
    told = refused(model_row(batch_size=text))
    assert told == f"jobs.csv:2: batch_size: must be a whole number from 1 to 1000000000000, not {text!r}"


def test_an_input_time_is_a_number(refused):
    assert refused(model_row(input_cpu_s="-0.1")).startswith("jobs.csv:2: input_cpu_s: must be a number from 0")


def test_the_time_of_the_host_is_part_of_a_duration(load):
    job = load(row(steps="50", host_s="0.1")).jobs[0]
    assert job.work == {"gpu": TimedWork(10.0, host_s=0.1)}
    times = step_times(job.work["gpu"], job.steps, "Tesla-T4", HostShare(1000))
    assert (times.host_ns, times.total_device_ns) == (100_000_000, 5_000_000_000)
    assert times.end_ns(0, 50) == 10_000_000_000


def test_the_time_of_the_host_comes_on_top_of_a_models_steps(load):
    job = load(model_row(host_s="0.1")).jobs[0]
    assert job.work == {"gpu": ModelWork("resnet50", 16, host_s=0.1)}


def test_stretching_a_duration_stretches_the_time_of_the_host(load):
    job = load(row(steps="50", host_s="0.1")).stretched(3).jobs[0]
    assert job.work == {"gpu": TimedWork(30.0, host_s=pytest.approx(0.3))}


def test_stages_come_on_top_of_durations_and_models(load):
    stages = StageTimes(fetch_ns=100_000_000, transfer_ns=50_000_000, exchange_ns=200_000_000)
    cells = {"fetch_s": "0.1", "transfer_s": "0.05", "exchange_s": "0.2"}
    timed, model = (load(text).jobs[0].work["gpu"] for text in (row(steps="50", **cells), model_row(**cells)))
    assert (timed, model) == (TimedWork(10.0, stages=stages), ModelWork("resnet50", 16, stages=stages))
    times = step_times(timed, 50, "Tesla-T4", HostShare(1000))
    assert (times.stages, times.end_ns(0, 50)) == (stages, to_ns(0.15 + 50 * (0.2 + 0.2)))


def test_stretching_a_duration_stretches_its_stages(load):
    job = load(row(steps="50", fetch_s="0.1")).stretched(3).jobs[0]
    assert job.work["gpu"].stages == StageTimes(fetch_ns=300_000_000)


NO_STAGES = {
    "no number": (row(fetch_s="-1"), "fetch_s: must be a number from 0"),
    "a speed that depends on the host": (
        row(transfer_s="0.01", speedup="2", best_cpus="4", cpus="1"),
        "transfer_s: is for jobs whose speed doesn't depend on their CPUs and memory",
    ),
    "a family": (row(exchange_s="0.01", model="synergy/alexnet"), "exchange_s: is for jobs whose speed doesn't depend"),
    "a range of GPUs": (model_row(fetch_s="0.1", max_gpus="2"), "fetch_s: is for jobs on one number of GPUs"),
    "no GPU": (
        "job_id,cpu_duration_s,fetch_s\na,1,0.1\n",
        "fetch_s: is for jobs on GPUs; give gpu_duration_s or model",
    ),
}


@pytest.mark.parametrize(("text", "message"), NO_STAGES.values(), ids=NO_STAGES)
def test_wrong_stages(refused, text, message):
    assert message in refused(text)


NO_HOST = {
    "no time for the GPU": (
        {"steps": "50", "host_s": "0.2"},
        "50 steps with 0.2 s of the host each leave none of 10 s for",
    ),
    "no number": ({"host_s": "x"}, "host_s: must be a number from 0"),
    "a speed that depends on the host": (
        {"host_s": "0.01", "speedup": "2", "best_cpus": "4", "cpus": "1"},
        "host_s: is for jobs whose speed doesn't depend on their CPUs and memory",
    ),
    "a family": (
        {"host_s": "0.01", "model": "synergy/alexnet"},
        "host_s: is for jobs whose speed doesn't depend on their CPUs and memory",
    ),
}


@pytest.mark.parametrize(("cells", "message"), NO_HOST.values(), ids=NO_HOST)
def test_wrong_times_of_the_host(refused, cells, message):
    assert message in refused(row(**cells))


@pytest.mark.parametrize("text", ["job_id,gpu_duration_s\n,1\n", "user,gpu_duration_s\nann,1\n"])
def test_a_missing_job_id_is_reported(refused, text):
    assert refused(text) == "jobs.csv:2: job_id: is missing"


def test_a_job_without_any_run_time_is_reported(refused):
    told = refused("job_id,user\na,ann\n")
    assert told == "jobs.csv:2: says neither gpu_duration_s, cpu_duration_s nor model: how long does it run?"


def test_the_second_use_of_a_job_id_is_reported(refused):
    assert refused("job_id,gpu_duration_s\na,1\nb,1\na,2\n") == "jobs.csv:4: job_id 'a' is used twice, first in line 2"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("job_id,gpu_durations\na,1\n", "jobs.csv:1: unknown column 'gpu_durations'; did you mean gpu_duration_s"),
        (row(gpu_type="V1OO"), "jobs.csv:2: gpu_type: unknown GPU type 'V1OO'; "),
        (row(gpu_type="T4|nothing"), "jobs.csv:2: gpu_type: unknown GPU type 'nothing'; "),
        (model_row(model="resnet5"), "jobs.csv:2: model: unknown model 'resnet5'; did you mean resnet50"),
    ],
)
def test_an_unknown_name_comes_with_a_suggestion(refused, text, message):
    assert refused(text, UnknownNameError).startswith(message)


# --- files that are wrong -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a,ann", "has 1 cells too few"),
        ("a", "has 2 cells too few"),
        ("a,ann,1,2", "has 1 cells too many"),
        ('a,"ann,1', "not CSV: unexpected end of data; close quotes on the line on which they open"),
        ('a,"ann"x,1', "not CSV: ',' expected after '\"'; close quotes on the line on which they open"),
    ],
)
def test_a_wrong_line_is_named_as_an_editor_counts_it(refused, line, message):
    head = '# comment, with a comma and a "\njob_id,user,gpu_duration_s\nx,ann,1\n\n# another\n'
    assert refused(f"{head}{line}\ny,ann,1\n") == f"jobs.csv:6: {message}"


def test_a_quoted_line_break_is_refused_on_its_first_line(refused):
    assert refused('job_id,user,gpu_duration_s\na,"an\nn",1\nb,bob,1\n').startswith("jobs.csv:2: not CSV: ")


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_reported_with_the_columns(refused, text):
    told = refused(text)
    assert told.startswith("jobs.csv: is empty; the first line names columns of job_id, user")
    assert all(column in told for column in COLUMNS)


def test_a_header_without_jobs_is_reported(refused):
    assert refused("job_id,gpu_duration_s\n") == "jobs.csv: has a header but no jobs"


def test_a_column_named_twice_is_reported(refused):
    assert refused("job_id,user,job_id\na,b,c\n") == "jobs.csv:1: a column is named twice"


@pytest.mark.parametrize("text", [b"job_id,gpu_duration_s\n\xff,1\n", "job_id,gpu_duration_s\na,1\n".encode("utf-16")])
def test_bytes_that_are_not_text_are_reported(refused, text):
    assert refused(text) == "jobs.csv: is not UTF-8 text"


@pytest.mark.parametrize(("name", "why"), [("missing.csv", "No such file or directory"), ("", "Is a directory")])
def test_a_file_that_cannot_be_read_is_reported(tmp_path, name, why):
    with pytest.raises(InputError, match=f"can't read the workload: {why}"):
        load_workload(tmp_path / name)


# --- models -------------------------------------------------------------------------------------------------------------


def test_a_model_row_has_its_memory_and_gpu_types_from_the_profile(load):
    workload = load(model_row(input_cpu_s="0.25"))
    job = workload.jobs[0]
    assert job.work == {"gpu": ModelWork("resnet50", 16, 0.25)}
    assert job.configurations[0].device_memory_bytes == workload.profiles.memory("resnet50", 16)[0] > GIB
    types = job.configurations[0].gpu_types
    assert types is not None
    assert {profile_of(each)[0] for each in types} <= set(workload.profiles.gpu_types_of("resnet50"))
    assert "NVIDIA_A100-SXM4-40GB-MIG-3g.20gb" in types
    for gpu_type in types:
        assert workload.profiles.step_profile("resnet50", gpu_type, 16).device_s > 0


def test_a_stated_gpu_memory_counts_more_than_the_profile(load):
    assert load(model_row(gpu_memory_gib="3")).jobs[0].configurations[0].device_memory_bytes == 3 * GIB


def test_types_whose_measurements_end_before_the_batch_size_are_left_out(load):
    job = load(model_row(batch_size=str(LAST_K80_BATCH + 1))).jobs[0]
    types = job.configurations[0].gpu_types
    assert types
    assert "Tesla_K80" not in types


def test_a_batch_size_beyond_the_profile_of_the_named_type_is_refused(load, refused):
    assert load(model_row(batch_size=str(LAST_K80_BATCH), gpu_type="K80")).jobs
    told = refused(model_row(batch_size=str(LAST_K80_BATCH + 1), gpu_type="K80"))
    assert told.startswith(f"jobs.csv:2: batch_size: {LAST_K80_BATCH + 1} is beyond what was measured for resnet50")
    assert f"(up to {LAST_K80_BATCH} on Tesla_K80)" in told


def test_a_batch_size_beyond_all_profiles_is_refused(refused):
    told = refused(model_row(batch_size="100000"))
    assert told.startswith("jobs.csv:2: batch_size: 100000 is beyond what was measured for resnet50")
    assert "256 on Tesla_V100-PCIE-32GB" in told


def test_a_named_type_without_a_profile_is_refused(refused):
    told = refused(model_row(gpu_type="H100"))
    assert told.startswith("jobs.csv:2: model: ")
    assert "has no profile on NVIDIA-H100" in told


@pytest.mark.parametrize("column", ["batch_size", "steps"])
def test_a_model_needs_a_batch_size_and_steps(refused, column):
    assert refused(model_row(**{column: ""})) == f"jobs.csv:2: {column}: is missing, but model is resnet50"


# --- another time line --------------------------------------------------------------------------------------------------


@pytest.fixture
def load_whole(tmp_path):
    def load_whole(text):
        path = tmp_path / "whole.csv"
        path.write_text(text)
        return load_workload(path)

    return load_whole


def test_stretching_multiplies_submit_times_and_durations_and_keeps_the_steps(load_whole):
    text = "job_id,submit_s,gpu_duration_s,cpu_duration_s,steps\na,3,10,57,50\n"
    (job,) = load_whole(text).stretched(4).jobs
    assert (job.submit_s, job.steps, job.work) == (12, 50, {"gpu": TimedWork(40.0), "cpu": TimedWork(228.0)})


@pytest.mark.parametrize(("factor", "steps"), [(4, 80), (0.5, 10), (0.01, 1)])
def test_a_model_gets_more_or_fewer_steps(load_whole, factor, steps):
    job, other = load_whole(model_row(submit_s="8")).stretched(factor).jobs[0], load_whole(model_row()).jobs[0]
    assert (job.submit_s, job.steps, job.work) == (8 * factor, steps, other.work)


def test_speeds_stay_what_they_are(load_whole):
    text = "job_id,gpu_duration_s,cpus,speedup,best_cpus\na,10,2,3,8\n"
    before, after = load_whole(text).jobs[0], load_whole(text).stretched(2).jobs[0]
    assert after.work["gpu"] == TimedWork(20.0, before.work["gpu"].sensitivity)


def test_a_factor_of_one_changes_nothing(load_whole):
    workload = load_whole(row())
    assert workload.stretched(1.0) is workload


@pytest.mark.parametrize("factor", [0, -1, float("nan"), float("inf"), 1e8, 1e-11])
def test_a_factor_that_makes_no_sense_is_refused(load_whole, factor):
    with pytest.raises(InputError, match="--stretch"):
        load_whole(row()).stretched(factor)
