"""The table of transitions: the next phase of a job and the changes that the loop gets."""

from __future__ import annotations

import itertools

import pytest

from operators.scheduling.see.job_state import State
from operators.scheduling.track.tracked_job import HOLDING, JobChange, LoopPhase, Transition, transition

IN_LOOP = (LoopPhase.QUEUED, LoopPhase.STARTING, LoopPhase.RUNNING, LoopPhase.STOPPING)


@pytest.mark.parametrize(
    ("phase", "state", "expected"),
    [
        (LoopPhase.UNKNOWN, State.IDLE, Transition(LoopPhase.QUEUED, (JobChange.ARRIVED,))),
        (LoopPhase.UNKNOWN, State.RUNNING, Transition(LoopPhase.RUNNING, (JobChange.ADOPTED,))),
        (LoopPhase.UNKNOWN, State.PLACED, Transition(LoopPhase.STARTING, (JobChange.ADOPTED,))),
        (LoopPhase.UNKNOWN, State.LEAVING, Transition(LoopPhase.STOPPING, (JobChange.ADOPTED,))),
        (LoopPhase.UNKNOWN, State.SUSPENDED, Transition(LoopPhase.UNKNOWN)),
        (LoopPhase.UNKNOWN, State.FINISHED, Transition(LoopPhase.ENDED)),
        (LoopPhase.FOREIGN, State.RUNNING, Transition(LoopPhase.FOREIGN, stop=True)),
        (LoopPhase.FOREIGN, State.LEAVING, Transition(LoopPhase.FOREIGN)),
        (LoopPhase.FOREIGN, State.IDLE, Transition(LoopPhase.QUEUED, (JobChange.ARRIVED,))),
        (LoopPhase.QUEUED, State.PLACED, Transition(LoopPhase.QUEUED, stop=True)),
        (LoopPhase.QUEUED, State.IDLE, Transition(LoopPhase.QUEUED)),
        (LoopPhase.STARTING, State.RUNNING, Transition(LoopPhase.RUNNING, (JobChange.STARTED,))),
        (LoopPhase.STARTING, State.IDLE, Transition(LoopPhase.QUEUED, (JobChange.STOPPED,))),
        (LoopPhase.STARTING, State.FINISHED, Transition(LoopPhase.ENDED, (JobChange.STARTED, JobChange.FINISHED))),
        (LoopPhase.RUNNING, State.FINISHED, Transition(LoopPhase.ENDED, (JobChange.FINISHED,))),
        (LoopPhase.RUNNING, State.PLACED, Transition(LoopPhase.RUNNING)),
        (LoopPhase.RUNNING, State.PARTLY_RELEASED, Transition(LoopPhase.STOPPING, stop=True)),
        (LoopPhase.RUNNING, State.SUSPENDED, Transition(LoopPhase.UNKNOWN, (JobChange.REMOVED,))),
        (LoopPhase.STOPPING, State.RUNNING, Transition(LoopPhase.STOPPING, stop=True)),
        (LoopPhase.STOPPING, State.IDLE, Transition(LoopPhase.QUEUED, (JobChange.STOPPED,))),
        (LoopPhase.STOPPING, State.ABSENT, Transition(LoopPhase.ENDED, (JobChange.REMOVED,))),
        (LoopPhase.STOPPING, State.FAILED, Transition(LoopPhase.ENDED, (JobChange.FAILED,))),
    ],
)
def test_table_of_transitions(phase: LoopPhase, state: State, expected: Transition) -> None:
    assert transition(phase, state) == expected


@pytest.mark.parametrize(("phase", "state"), list(itertools.product(LoopPhase, State)))
def test_the_same_state_twice_gives_no_second_change(phase: LoopPhase, state: State) -> None:
    first = transition(phase, state)
    second = transition(first.phase, state)
    assert second.changes == ()
    assert second.phase is first.phase


@pytest.mark.parametrize(("phase", "state"), list(itertools.product(LoopPhase, State)))
def test_the_loop_gets_one_end_per_job_and_no_change_before_its_arrival(phase: LoopPhase, state: State) -> None:
    expected = transition(phase, state)
    entered = phase in IN_LOOP or bool({JobChange.ARRIVED, JobChange.ADOPTED} & set(expected.changes))
    assert entered or not expected.changes
    left = {JobChange.FINISHED, JobChange.FAILED, JobChange.REMOVED} & set(expected.changes)
    assert (expected.phase not in IN_LOOP) == bool(left) or phase not in IN_LOOP


@pytest.mark.parametrize("state", HOLDING)
def test_a_job_that_runs_unexpectedly_is_stopped(state: State) -> None:
    for phase in (LoopPhase.FOREIGN, LoopPhase.QUEUED, LoopPhase.STOPPING):
        assert transition(phase, state).stop
