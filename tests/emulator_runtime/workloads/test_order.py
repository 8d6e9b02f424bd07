"""Run orders: they survive the wire, a bad field is named, and memory and times come from profile or job."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.errors import BeyondProfileError, InputError, ProtocolError
from emulator_runtime.domain.job import ModelWork, TimedWork
from emulator_runtime.domain.sensitivity import HostShare, Sensitivity
from emulator_runtime.domain.stages import NO_STAGES, StageTimes
from emulator_runtime.ipc.fields import MAX_NS
from emulator_runtime.ipc.frames import decode_body, encode
from emulator_runtime.workloads.order import ProgramOrder, RunOrder

names = st.text(max_size=20)
seconds = st.floats(0, 1e8)
whole = st.integers(0, MAX_NS)
curves = st.dictionaries(st.integers(1, MAX_NS), st.floats(0.01, 100), min_size=1, max_size=4).map(
    lambda knots: tuple(sorted(knots.items()))
)
sensitivities = st.none() | st.builds(Sensitivity, curves, curves | st.just(()))
stages = st.just(NO_STAGES) | st.builds(StageTimes, whole, whole, whole)
works = st.builds(TimedWork, seconds, sensitivities, stages=stages) | st.builds(
    ModelWork, names, st.integers(1, 4096), seconds, stages=stages
)
paths = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20).map(Path)
orders = st.builds(
    RunOrder,
    manager=paths,
    token=names,
    job_id=names,
    steps=st.integers(1, MAX_NS),
    work=works,
    gpu_type=names,
    cpu_milli=st.integers(1, MAX_NS),
    device_memory_bytes=whole,
    begin_ns=whole,
    release_ns=whole,
    checkpoint=paths,
    profiles=names,
    host_memory_bytes=whole,
    first_step=whole,
    first_sample=whole,
    step_samples=st.integers(1, MAX_NS),
    linked=st.booleans(),
    nodes_linked=st.booleans(),
)

ORDER = RunOrder(
    manager=Path("/run/manager.sock"),
    token="secret",
    job_id="job-1",
    steps=10,
    work=ModelWork("resnet50", 32, 0.5),
    gpu_type="Tesla_V100-PCIE-32GB",
    cpu_milli=2000,
    device_memory_bytes=5,
    begin_ns=1,
    release_ns=2,
    checkpoint=Path("/tmp/job.json"),
)


@given(orders)
def test_round_trip(order):
    assert RunOrder.from_message(decode_body(encode(order.to_message())[4:])) == order


def test_what_may_be_left_out():
    short = {"manager": "/m", "token": "t", "job_id": "j", "steps": 3, "work": {"duration_s": 2}, "checkpoint": "/c"}
    order = RunOrder.from_message(short)
    assert (order.gpu_type, order.cpu_milli, order.begin_ns, order.release_ns) == ("", 1000, 0, 0)
    assert (order.device_memory_bytes, order.host_memory_bytes, order.profiles) == (0, 0, "")
    assert (order.linked, order.nodes_linked) == (True, False)
    assert order.work == TimedWork(2.0)


BAD = [
    ("manager", None),
    ("token", 3),
    ("job_id", ["x"]),
    ("steps", 0),
    ("steps", 1.5),
    ("steps", True),
    ("work", None),
    ("work", []),
    ("gpu_type", 1),
    ("cpu_milli", 0),
    ("device_memory_bytes", -1),
    ("begin_ns", "0"),
    ("release_ns", MAX_NS + 1),
    ("checkpoint", {}),
    ("profiles", 7),
    ("host_memory_bytes", -1),
    ("linked", 1),
    ("nodes_linked", "yes"),
]


@pytest.mark.parametrize(("field", "value"), BAD)
def test_a_bad_field_is_named(field, value):
    with pytest.raises(ProtocolError, match=f"^field '{field}' must be "):
        RunOrder.from_message(ORDER.to_message() | {field: value})


@pytest.mark.parametrize("field", ["manager", "token", "job_id", "steps", "work", "checkpoint"])
def test_a_missing_field_is_named(field):
    message = ORDER.to_message()
    del message[field]
    with pytest.raises(ProtocolError, match=f"^field '{field}' must be "):
        RunOrder.from_message(message)


@pytest.mark.parametrize(
    ("work", "field"),
    [
        ({}, "model"),
        ({"duration_s": -1}, "duration_s"),
        ({"duration_s": float("nan")}, "duration_s"),
        ({"duration_s": 1e9}, "duration_s"),
        ({"duration_s": True}, "duration_s"),
        ({"duration_s": "3"}, "duration_s"),
        ({"model": 1, "batch_size": 1}, "model"),
        ({"model": "m"}, "batch_size"),
        ({"model": "m", "batch_size": 0}, "batch_size"),
        ({"model": "m", "batch_size": 1, "input_cpu_s": -0.1}, "input_cpu_s"),
        ({"model": "m", "batch_size": 1, "input_cpu_s": float("inf")}, "input_cpu_s"),
    ],
)
def test_a_bad_work_is_named(work, field):
    with pytest.raises(ProtocolError, match=f"^field '{field}' must be "):
        RunOrder.from_message(ORDER.to_message() | {"work": work})


@pytest.mark.parametrize(
    "curve", [None, 3, [3], [[1]], [["x", 1]], [[1, "x"]], [[2, 1.0], [1, 1.0]], [[0, 1.0]], [[float("inf"), 1.0]]]
)
def test_a_bad_curve_of_speeds_is_named(curve):
    work = {"duration_s": 1.0, "cpu_speeds": curve, "memory_speeds": [[1, 1.0]]}
    with pytest.raises(ProtocolError, match=r"^cpu_speeds and memory_speeds must be lists of \[amount, speed\]"):
        RunOrder.from_message(ORDER.to_message() | {"work": work})


def test_the_times_follow_the_share_of_the_node():
    work = TimedWork(10.0, Sensitivity(((2000, 1.0), (4000, 2.0)), ((8, 1.0), (16, 2.0))))
    order = replace(ORDER, work=work, host_memory_bytes=16)
    assert order.step_times(None).total_device_ns == 10_000_000_000  # two CPUs
    assert order.step_times(None, HostShare(4000, 16)).total_device_ns == 5_000_000_000
    assert order.step_times(None, HostShare(4000, 8)).total_device_ns == 10_000_000_000


def test_the_times_are_those_of_the_profile():
    profiles = ORDER.profile_table()
    profile = profiles.step_profile("resnet50", "Tesla_V100-PCIE-32GB", 32)
    times = ORDER.step_times(profiles)
    assert times.total_device_ns == 10 * round(profile.device_s * 1e9)
    assert times.input_ns == 250_000_000  # 0.5 s of CPU on two CPUs
    stated = replace(ORDER, device_memory_bytes=2**32)
    assert stated.memory_bytes(profiles) == (profile.persistent_bytes, 2**32)
    assert ORDER.memory_bytes(profiles) == (5, 5)  # the row states less than the profile: the row counts


def test_timed_work_needs_no_profile_and_states_its_memory():
    order = RunOrder.from_message(ORDER.to_message() | {"work": {"duration_s": 2.5}})
    assert order.profile_table() is None
    assert order.step_times(None).total_device_ns == 2_500_000_000
    assert order.memory_bytes(None) == (5, 5)


def test_a_file_of_ones_own_is_read(tmp_path):
    (tmp_path / "profiles.json").write_text(json.dumps({"nonsense": 1}))
    order = RunOrder.from_message(ORDER.to_message() | {"profiles": str(tmp_path / "profiles.json")})
    with pytest.raises(InputError, match=r"profiles\.json"):
        order.profile_table()


def test_work_that_no_profile_has():
    beyond = RunOrder.from_message(ORDER.to_message() | {"work": {"model": "resnet50", "batch_size": 100_000}})
    with pytest.raises(BeyondProfileError):
        beyond.step_times(beyond.profile_table())
    nowhere = RunOrder.from_message(ORDER.to_message() | {"gpu_type": "Tesla-T4"})
    with pytest.raises(InputError, match="resnet50 has no profile on Tesla-T4"):
        nowhere.step_times(nowhere.profile_table())


PROGRAM = {"words": ["python", "train.py"], "variables": {"A": "b"}, "resumes": True}


def test_a_program_goes_along():
    found = RunOrder.from_message(ORDER.to_message() | {"program": PROGRAM})
    assert found.program == ProgramOrder(("python", "train.py"), {"A": "b"}, resumes=True)
    assert RunOrder.from_message(found.to_message()) == found
    assert ORDER.program is None and "program" not in ORDER.to_message()


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"words": []}, "words"),
        ({"words": "python"}, "words"),
        ({"variables": {"A": 1}}, "A"),
        ({"variables": 1}, "variables"),
    ],
)
def test_a_bad_program_is_named(members, field):
    with pytest.raises(ProtocolError, match=f"field '{field}'"):
        RunOrder.from_message(ORDER.to_message() | {"program": PROGRAM | members})
