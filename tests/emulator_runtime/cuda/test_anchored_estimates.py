"""A training step found by the repetition in a program's work, and the factor that gives it a measured time."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Sequence
from ctypes import c_double, c_int64, c_size_t
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

MS = 1_000_000


class Work(ctypes.Structure):
    _fields_ = (
        ("key", ctypes.c_uint64),
        ("duration_ns", c_int64),
        ("dispatch_ns", c_int64),
        ("measured", ctypes.c_bool),
        ("waited", ctypes.c_bool),
    )


class Steps:
    """src/core/step.h."""

    def __init__(self, core: Path):
        self._library = ctypes.CDLL(str(core))
        self._library.emu_step_find.restype = c_size_t
        self._library.emu_step_ns.restype = c_double
        self._library.emu_step_factor.restype = c_double

    def find(self, keys: Sequence[int], step_ns: int, duration_ns: int = MS) -> int:
        works = (Work * len(keys))(*(Work(key, duration_ns) for key in keys))
        lengths = (c_size_t * len(keys))()
        return int(self._library.emu_step_find(works, c_size_t(len(keys)), c_int64(step_ns), lengths))

    def takes_ns(self, works: Sequence[Work], factor: float = 1) -> float:
        return float(self._library.emu_step_ns((Work * len(works))(*works), c_size_t(len(works)), c_double(factor)))

    def factor(self, works: Sequence[Work], step_ns: int) -> float:
        return float(self._library.emu_step_factor((Work * len(works))(*works), c_size_t(len(works)), c_int64(step_ns)))


@pytest.fixture(scope="module")
def steps(libraries: Path) -> Steps:
    return Steps(libraries / "libemugpu_core.so")


LAYER, OTHER = [1, 2, 3], [7, 8, 9, 10]
STEP = LAYER * 12 + OTHER


@pytest.mark.parametrize("more", range(len(STEP)))
def test_two_equal_steps_are_found_wherever_the_program_is(steps: Steps, more: int) -> None:
    warm_up = [100, *STEP, 101]
    assert steps.find([*warm_up, *STEP, *STEP, *STEP[:more]], len(STEP) * MS) == len(STEP)


def test_a_layer_is_no_step(steps: Steps) -> None:
    assert steps.find(LAYER * 12, len(STEP) * MS) == 0


def test_what_takes_a_third_of_the_time_is_no_step(steps: Steps) -> None:
    """As validation does before training: forward passes."""
    assert steps.find(STEP * 3, 3 * len(STEP) * MS) == 0


def test_several_steps_are_found_as_one(steps: Steps) -> None:
    assert steps.find(STEP * 4, 2 * len(STEP) * MS) == len(STEP)


@pytest.mark.parametrize("keys", [[], [1], [1, 2], [1, 2, 3, 1, 2]])
def test_without_a_repetition_there_is_no_step(steps: Steps, keys: list[int]) -> None:
    assert steps.find(keys, MS) == 0


@settings(max_examples=200)
@given(step=st.lists(st.integers(1, 4), min_size=2, max_size=40), warm_up=st.lists(st.integers(1, 4), max_size=30))
def test_what_is_found_repeats(steps: Steps, step: list[int], warm_up: list[int]) -> None:
    step = [*step, 9]
    keys = warm_up + step * 2
    found = steps.find(keys, len(step) * MS)
    assert found > 0
    assert keys[-found:] == keys[-2 * found : -found]
    assert 0.4 * len(step) <= found <= len(step)


def test_a_step_takes_what_the_device_or_the_host_needs(steps: Steps) -> None:
    assert steps.takes_ns([Work(1, 3 * MS), Work(2, 2 * MS)]) == 5 * MS
    assert steps.takes_ns([Work(1, 3 * MS, 4 * MS), Work(2, 2 * MS, 4 * MS)]) == 8 * MS
    assert steps.takes_ns([Work(1, 3 * MS), Work(2, 2 * MS)], factor=2) == 10 * MS


def test_a_program_that_waits_pays_for_its_launches(steps: Steps) -> None:
    """The launch of the second work begins with that of the first one, which a program that waits makes anew in each step."""
    works = [Work(1, 3 * MS, 2 * MS, False, True), Work(2, 4 * MS, 2 * MS)]
    assert steps.takes_ns(works) == 7 * MS
    works[0].duration_ns = MS
    assert steps.takes_ns(works) == 6 * MS, "the device waits 1 ms for the second launch"


@settings(max_examples=200)
@given(
    works=st.lists(
        st.tuples(st.integers(1, 50 * MS), st.integers(0, MS), st.booleans(), st.booleans()), min_size=1, max_size=30
    ),
    factor=st.floats(0.1, 10),
)
def test_the_factor_gives_a_step_its_time(
    steps: Steps, works: list[tuple[int, int, bool, bool]], factor: float
) -> None:
    issued = [Work(index, *fields) for index, fields in enumerate(works)]
    issued[0].measured = False
    wanted_ns = round(steps.takes_ns(issued, factor))
    found = steps.factor(issued, wanted_ns)
    assert steps.takes_ns(issued, found) == pytest.approx(wanted_ns, rel=1e-6, abs=2)


def test_measured_work_keeps_its_time(steps: Steps) -> None:
    works = [Work(1, 6 * MS, 0, True), Work(2, 2 * MS)]
    assert steps.takes_ns(works, 3) == 12 * MS
    assert steps.factor(works, 10 * MS) == pytest.approx(2)


# ---- in a process

PROGRAM = """
grid = (c_uint * 3)(1, 1, 1)
stream = core.default_stream()
def kernel(name, blocks):
    made = c_void_p(core.library.emu_kernel_named(name))
    core.call("emu_launch_kernel", stream, made, (c_uint * 3)(blocks, 1, 1), grid, None)
def step():
    for _ in range(8):
        kernel(b"forward", 2)
    for blocks in range(1, 9):
        kernel(b"backward", blocks)
    core.synchronize(stream)
for _ in range(20):
    kernel(b"first weights", 5)
times = []
for _ in range(6):
    begin = core.record(stream)
    step()
    times.append(core.elapsed_ms(begin, core.record(stream)))
print(times)
"""


def test_a_programs_steps_take_the_given_time_once_two_were_alike(run_core: Callable[..., str]) -> None:
    output = run_core(PROGRAM, step_ns=32 * MS, warp=1)  # 16 kernels of 1 ms each by estimates
    times = next(line for line in output.splitlines() if line.startswith("["))
    first, second, *_, last = json.loads(times)
    assert 16 <= first < 20
    assert 16 <= second < 40
    assert 32 <= last < 36
    assert "a step on device 0 is 16 pieces of work, 16.000 ms by estimates; it takes 32.000 ms from now on" in output


def test_steps_that_are_graphs_are_found(run_core: Callable[..., str]) -> None:
    output = run_core(
        """
        stream = core.stream()
        core.call("emu_capture_begin", stream, None)
        core.launch(stream, 9)
        core.work(stream, name=b"the last one")
        graph = core.made("emu_capture_end", stream)
        for _ in range(5):
            begin = core.record(stream)
            core.call("emu_graph_launch", graph, stream)
            core.synchronize(stream)
        print(core.elapsed_ms(begin, core.record(stream)))
        """,
        step_ns=8 * MS,
        constant_ns=MS,
        warp=1,
    )
    assert "it takes 8.000 ms from now on (--anchor" in output


def test_a_factor_multiplies_all_estimates(run_core: Callable[..., str]) -> None:
    run_core(
        """
        stream = core.default_stream()
        begin, open_gate = core.gate(stream)
        core.launch(stream, 10)
        end = core.record(stream)
        open_gate()
        core.synchronize(stream)
        assert core.elapsed_ms(begin, end) == 25
        """,
        anchor=2.5,
        warp=1,
    )


def test_a_step_that_is_never_found_is_said_at_the_end(run_core: Callable[..., str]) -> None:
    output = run_core("core.launch(core.default_stream(), 10)", step_ns=500 * MS, warp=1)
    assert "no step was found on device 0 whose time is near 500.000 ms: its estimates aren't anchored" in output


def test_absurd_sizes_take_days_not_negative_times(run_core: Callable[..., str]) -> None:
    run_core(
        """
        stream = core.default_stream()
        begin = core.record(stream)
        core.work(stream, kind=1, name=b"gemm", flops=1e300, bytes=1e300)
        core.work(stream, kind=1, name=b"gemm", flops=float("nan"))
        end = core.record(stream)
        core.synchronize(stream)
        assert 1e9 <= core.elapsed_ms(begin, end) < 1.1e9, core.elapsed_ms(begin, end)
        """,
        estimator="roofline",
        warp=1,
    )


@pytest.mark.parametrize(("value", "right"), [("32ms", True), ("0.032s", True), ("32", False), ("soon", False)])
def test_a_pod_states_its_step_by_a_variable(
    run_core: Callable[..., str], monkeypatch: pytest.MonkeyPatch, value: str, right: bool
) -> None:
    monkeypatch.setenv("EMUGPU_CUDA_STEP", value)
    if right:
        assert "it takes 32.000 ms from now on" in run_core(PROGRAM, warp=1)
    else:
        output = run_core("assert core.started != 0")
        assert f"EMUGPU_CUDA_STEP must be a time such as 86ms, not {value}" in output
