from __future__ import annotations

from scheduler_sims.clusters.base import Event, Happening
from scheduler_sims.clusters.local.inbox import Inbox


def event(at_ns: int, what: Happening, job_id: str = "a", row: int = 0) -> Event:
    return Event(at_ns, what, job_id, row, 7)


def test_only_an_end_is_held_back() -> None:
    inbox = Inbox(10)
    started, stopped, finished = (event(5, what) for what in (Happening.STARTED, Happening.STOPPED, Happening.FINISHED))
    for each in (started, finished, stopped):
        inbox.add(each)
    assert inbox.has_news()
    assert inbox.take(5) == [stopped, started]
    assert (inbox.has_news(), inbox.due_ns(), inbox.held("a")) == (False, 15, finished)
    assert inbox.take(14) == []
    assert inbox.take(15) == [finished]
    assert (inbox.due_ns(), inbox.held("a")) == (None, None)


def test_without_the_cost_everything_is_told_at_once_in_order() -> None:
    inbox = Inbox(0)
    late, early = event(9, Happening.FINISHED, "b", 1), event(9, Happening.FINISHED, "a", 0)
    inbox.add(late)
    inbox.add(early)
    assert inbox.take(0) == [early, late]
