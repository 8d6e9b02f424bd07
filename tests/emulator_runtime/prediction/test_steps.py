"""Which repeated work is a training step."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator_runtime.prediction.records import RankTrace
from emulator_runtime.prediction.steps import Steps, compute_work, find_steps
from tests.support.traces import Host

LAYER = [1, 2, 3]
STEP = [0, *LAYER * 12, 7, 8, 8, 8, 8, 9, 10]
EVALUATION = [0, *LAYER * 6, 20]


@pytest.mark.parametrize("before", [0, 1, 30])
@pytest.mark.parametrize("more", [0, 5, 40])
def test_steps_are_found_wherever_the_trace_begins_and_ends(before: int, more: int) -> None:
    keys = [*range(100, 100 + before), *STEP * 4, *STEP[:more], 99]
    found = find_steps(keys)
    assert found is not None
    assert (found.length, found.count) == (len(STEP), 4)
    assert found.first in (before, before - 1)


def test_layers_are_no_steps_even_if_two_steps_are_all() -> None:
    assert find_steps(STEP * 2) == Steps(0, len(STEP), 2)


def test_evaluation_and_steps_that_differ_do_no_harm() -> None:
    keys = [*EVALUATION * 2, *STEP * 3, 55, *STEP * 5, *EVALUATION]
    assert find_steps(keys) == Steps(len(EVALUATION) * 2 + len(STEP) * 3 + 1, len(STEP), 5)


def test_accumulated_gradients_are_parts_of_a_step() -> None:
    step = [*[1, 2, 3, 4, 5] * 8, 6, 7]
    assert find_steps(step * 3) == Steps(0, len(step), 3)


@pytest.mark.parametrize("keys", [[], [1], [1, 2], [1, 2, 3, 1, 2], list(range(50))])
def test_without_a_repetition_there_is_no_step(keys: list[int]) -> None:
    assert find_steps(keys) is None


def test_what_may_not_be_a_step_is_none() -> None:
    keys = [*[1, 2] * 5, 3] * 3
    assert find_steps(keys) == Steps(0, 11, 3)
    assert find_steps(keys, lambda steps: steps.length < 5) == Steps(0, 2, 5)
    assert find_steps(keys, lambda steps: False) is None


@settings(max_examples=200)
@given(step=st.lists(st.integers(1, 4), min_size=1, max_size=40), warm_up=st.lists(st.integers(1, 4), max_size=30))
def test_what_is_found_repeats(step: list[int], warm_up: list[int]) -> None:
    """A key that is unique in the step makes its length known."""
    keys = [*warm_up, *[9, *step] * 4]
    found = find_steps(keys)
    assert found is not None
    run = keys[found.first : found.first + found.length * found.count]
    assert run == run[: found.length] * found.count
    assert found.count >= 2


def test_the_work_of_the_busiest_device_counts() -> None:
    """Equal works have equal keys; copies between devices, other devices and marks have none."""
    host = Host()
    host.launch(5, name="a")
    host.copy(5)
    host.copy(5, to=0, source=0)
    host.launch(5, name="b")
    host.synchronize(host.mark())
    host.launch(5, name="a")
    moment = host.mark()
    host.launch(5, name="b")
    host.synchronize(moment)  # the device is busy still
    host.launch(6, name="a")
    work = compute_work(host.trace())
    assert work.device == 0
    assert list(work.records) == [0, 2, 3, 6, 8, 10]
    assert work.keys == [0, 1, 2, 0, 2, 3]
    assert work.waited == {3}


def test_a_rank_without_launches_has_no_work() -> None:
    assert compute_work(RankTrace(0, [])).keys == []
