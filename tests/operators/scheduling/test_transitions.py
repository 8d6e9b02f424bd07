"""The table from what is seen to what is told."""

from __future__ import annotations

import itertools

import pytest

from operators.scheduling.see.job_state import State
from operators.scheduling.track.tracked_job import HOLDS, Known, News, Verdict, judge

IN_LOOP = (Known.QUEUED, Known.STARTING, Known.RUNNING, Known.STOPPING)


@pytest.mark.parametrize(
    ("known", "state", "verdict"),
    [
        (Known.NOTHING, State.IDLE, Verdict(Known.QUEUED, (News.ARRIVED,))),
        (Known.NOTHING, State.RUNNING, Verdict(Known.RUNNING, (News.ADOPTED,))),
        (Known.NOTHING, State.HELD, Verdict(Known.STARTING, (News.ADOPTED,))),
        (Known.NOTHING, State.LEAVING, Verdict(Known.STOPPING, (News.ADOPTED,))),
        (Known.NOTHING, State.WITHHELD, Verdict(Known.NOTHING)),
        (Known.NOTHING, State.FINISHED, Verdict(Known.ENDED)),
        (Known.STRANGE, State.RUNNING, Verdict(Known.STRANGE, stop=True)),
        (Known.STRANGE, State.LEAVING, Verdict(Known.STRANGE)),
        (Known.STRANGE, State.IDLE, Verdict(Known.QUEUED, (News.ARRIVED,))),
        (Known.QUEUED, State.HELD, Verdict(Known.QUEUED, stop=True)),
        (Known.QUEUED, State.IDLE, Verdict(Known.QUEUED)),
        (Known.STARTING, State.RUNNING, Verdict(Known.RUNNING, (News.STARTED,))),
        (Known.STARTING, State.IDLE, Verdict(Known.QUEUED, (News.STOPPED,))),
        (Known.STARTING, State.FINISHED, Verdict(Known.ENDED, (News.STARTED, News.FINISHED))),
        (Known.RUNNING, State.FINISHED, Verdict(Known.ENDED, (News.FINISHED,))),
        (Known.RUNNING, State.HELD, Verdict(Known.RUNNING)),
        (Known.RUNNING, State.TORN, Verdict(Known.STOPPING, stop=True)),
        (Known.RUNNING, State.WITHHELD, Verdict(Known.NOTHING, (News.REMOVED,))),
        (Known.STOPPING, State.RUNNING, Verdict(Known.STOPPING, stop=True)),
        (Known.STOPPING, State.IDLE, Verdict(Known.QUEUED, (News.STOPPED,))),
        (Known.STOPPING, State.ABSENT, Verdict(Known.ENDED, (News.REMOVED,))),
        (Known.STOPPING, State.FAILED, Verdict(Known.ENDED, (News.FAILED,))),
    ],
)
def test_what_is_told(known: Known, state: State, verdict: Verdict) -> None:
    assert judge(known, state) == verdict


@pytest.mark.parametrize(("known", "state"), list(itertools.product(Known, State)))
def test_the_same_sight_tells_nothing_twice(known: Known, state: State) -> None:
    first = judge(known, state)
    second = judge(first.known, state)
    assert second.news == ()
    assert second.known is first.known


@pytest.mark.parametrize(("known", "state"), list(itertools.product(Known, State)))
def test_a_loop_hears_an_end_once_and_of_nothing_that_it_never_heard_of(known: Known, state: State) -> None:
    verdict = judge(known, state)
    entered = known in IN_LOOP or bool({News.ARRIVED, News.ADOPTED} & set(verdict.news))
    assert entered or not verdict.news
    left = {News.FINISHED, News.FAILED, News.REMOVED} & set(verdict.news)
    assert (verdict.known not in IN_LOOP) == bool(left) or known not in IN_LOOP


@pytest.mark.parametrize("state", HOLDS)
def test_what_runs_without_anybody_knowing_is_stopped(state: State) -> None:
    for known in (Known.STRANGE, Known.QUEUED, Known.STOPPING):
        assert judge(known, state).stop
