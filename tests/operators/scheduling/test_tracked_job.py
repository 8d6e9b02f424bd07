"""The table from what is seen to what is told."""

from __future__ import annotations

import itertools

import pytest

from operators.scheduling.see.job_state import State
from operators.scheduling.track.tracked_job import HOLDS, LoopPhase, News, Verdict, judge

IN_LOOP = (LoopPhase.QUEUED, LoopPhase.STARTING, LoopPhase.RUNNING, LoopPhase.STOPPING)


@pytest.mark.parametrize(
    ("known", "state", "verdict"),
    [
        (LoopPhase.NOTHING, State.IDLE, Verdict(LoopPhase.QUEUED, (News.ARRIVED,))),
        (LoopPhase.NOTHING, State.RUNNING, Verdict(LoopPhase.RUNNING, (News.ADOPTED,))),
        (LoopPhase.NOTHING, State.HELD, Verdict(LoopPhase.STARTING, (News.ADOPTED,))),
        (LoopPhase.NOTHING, State.LEAVING, Verdict(LoopPhase.STOPPING, (News.ADOPTED,))),
        (LoopPhase.NOTHING, State.WITHHELD, Verdict(LoopPhase.NOTHING)),
        (LoopPhase.NOTHING, State.FINISHED, Verdict(LoopPhase.ENDED)),
        (LoopPhase.STRANGE, State.RUNNING, Verdict(LoopPhase.STRANGE, stop=True)),
        (LoopPhase.STRANGE, State.LEAVING, Verdict(LoopPhase.STRANGE)),
        (LoopPhase.STRANGE, State.IDLE, Verdict(LoopPhase.QUEUED, (News.ARRIVED,))),
        (LoopPhase.QUEUED, State.HELD, Verdict(LoopPhase.QUEUED, stop=True)),
        (LoopPhase.QUEUED, State.IDLE, Verdict(LoopPhase.QUEUED)),
        (LoopPhase.STARTING, State.RUNNING, Verdict(LoopPhase.RUNNING, (News.STARTED,))),
        (LoopPhase.STARTING, State.IDLE, Verdict(LoopPhase.QUEUED, (News.STOPPED,))),
        (LoopPhase.STARTING, State.FINISHED, Verdict(LoopPhase.ENDED, (News.STARTED, News.FINISHED))),
        (LoopPhase.RUNNING, State.FINISHED, Verdict(LoopPhase.ENDED, (News.FINISHED,))),
        (LoopPhase.RUNNING, State.HELD, Verdict(LoopPhase.RUNNING)),
        (LoopPhase.RUNNING, State.TORN, Verdict(LoopPhase.STOPPING, stop=True)),
        (LoopPhase.RUNNING, State.WITHHELD, Verdict(LoopPhase.NOTHING, (News.REMOVED,))),
        (LoopPhase.STOPPING, State.RUNNING, Verdict(LoopPhase.STOPPING, stop=True)),
        (LoopPhase.STOPPING, State.IDLE, Verdict(LoopPhase.QUEUED, (News.STOPPED,))),
        (LoopPhase.STOPPING, State.ABSENT, Verdict(LoopPhase.ENDED, (News.REMOVED,))),
        (LoopPhase.STOPPING, State.FAILED, Verdict(LoopPhase.ENDED, (News.FAILED,))),
    ],
)
def test_what_is_told(known: LoopPhase, state: State, verdict: Verdict) -> None:
    assert judge(known, state) == verdict


@pytest.mark.parametrize(("known", "state"), list(itertools.product(LoopPhase, State)))
def test_the_same_sight_tells_nothing_twice(known: LoopPhase, state: State) -> None:
    first = judge(known, state)
    second = judge(first.known, state)
    assert second.news == ()
    assert second.known is first.known


@pytest.mark.parametrize(("known", "state"), list(itertools.product(LoopPhase, State)))
def test_a_loop_hears_an_end_once_and_of_nothing_that_it_never_heard_of(known: LoopPhase, state: State) -> None:
    verdict = judge(known, state)
    entered = known in IN_LOOP or bool({News.ARRIVED, News.ADOPTED} & set(verdict.news))
    assert entered or not verdict.news
    left = {News.FINISHED, News.FAILED, News.REMOVED} & set(verdict.news)
    assert (verdict.known not in IN_LOOP) == bool(left) or known not in IN_LOOP


@pytest.mark.parametrize("state", HOLDS)
def test_what_runs_without_anybody_knowing_is_stopped(state: State) -> None:
    for known in (LoopPhase.STRANGE, LoopPhase.QUEUED, LoopPhase.STOPPING):
        assert judge(known, state).stop
