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
    assert (inbox.has_news(), inbox.due_ns(), inbox.pending_end("a")) == (False, 15, finished)
    assert inbox.take(14) == []
    assert inbox.take(15) == [finished]
    assert (inbox.due_ns(), inbox.pending_end("a")) == (None, None)


def test_devices_of_a_stopped_job_are_free_later_where_others_stop_too() -> None:
    inbox = Inbox(0)
    inbox.stopping("a", 4)
    inbox.stopping("b", 4)
    inbox.add(event(5, Happening.STARTED))
    inbox.add(event(7, Happening.STOPPED))
    inbox.add(event(7, Happening.FAILED, "b", 1))
    assert inbox.take(7) == [event(5, Happening.STARTED), event(7, Happening.FAILED, "b", 1)]
    assert (inbox.due_ns(), inbox.pending_end("a")) == (11, event(11, Happening.STOPPED))
    assert inbox.take(11) == [event(11, Happening.STOPPED)]
    inbox.add(event(20, Happening.STOPPED))  # of another run, stopped alone
    assert inbox.take(20) == [event(20, Happening.STOPPED)]


def test_without_the_cost_everything_is_reported_at_once_in_order() -> None:
    inbox = Inbox(0)
    late, early = event(9, Happening.FINISHED, "b", 1), event(9, Happening.FINISHED, "a", 0)
    inbox.add(late)
    inbox.add(early)
    assert inbox.take(0) == [early, late]
