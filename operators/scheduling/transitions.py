"""When a job's state is news: a table from what the loop knows of it to what it must hear, so that nothing is told twice."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from operators.scheduling.job_state import State


class Known(StrEnum):
    """What the scheduler believes of a job."""

    NOTHING = "nothing"
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STRANGE = "strange"
    """It runs, and the scheduler did not start it, or can't tell how: it is stopped before anything else."""
    ENDED = "ended"


class News(StrEnum):
    """What the scheduler is told."""

    ARRIVED = "arrived"
    ADOPTED = "adopted"
    STARTED = "started"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is believed next, what is told in this order, and whether the job must be stopped now."""

    known: Known
    news: tuple[News, ...] = ()
    stop: bool = False


HOLDS = (State.HELD, State.RUNNING, State.TORN)
"""Something of it has a place, and it goes on unless it is stopped."""
_IN_LOOP = (Known.QUEUED, Known.STARTING, Known.RUNNING, Known.STOPPING)


def judge(known: Known, state: State) -> Verdict:
    """Pure. Told twice the same, it says nothing the second time."""
    if known in _IN_LOOP:
        return _of_known(known, state)
    if known is Known.ENDED:
        return Verdict(known)
    if state is State.IDLE:
        return Verdict(Known.QUEUED, (News.ARRIVED,))
    if state in (State.FINISHED, State.FAILED, State.ABSENT):
        return Verdict(Known.ENDED)
    if known is Known.STRANGE or state is State.TORN:
        return Verdict(Known.STRANGE, stop=state in HOLDS)
    adopted = {State.HELD: Known.STARTING, State.RUNNING: Known.RUNNING, State.LEAVING: Known.STOPPING}
    return Verdict(adopted[state], (News.ADOPTED,)) if state in adopted else Verdict(known)


def _of_known(known: Known, state: State) -> Verdict:
    started = (News.STARTED,) if known is Known.STARTING else ()
    match state:
        case State.FINISHED:
            return Verdict(Known.ENDED, (*started, News.FINISHED))
        case State.FAILED:
            return Verdict(Known.ENDED, (News.FAILED,))
        case State.ABSENT:
            return Verdict(Known.ENDED, (News.REMOVED,))
        case State.WITHHELD:
            return Verdict(Known.NOTHING, (News.REMOVED,))
        case State.IDLE if known is not Known.QUEUED:
            return Verdict(Known.QUEUED, (News.STOPPED,))
        case State.RUNNING if known is Known.STARTING:
            return Verdict(Known.RUNNING, started)
        case State.TORN:
            return Verdict(known if known is Known.QUEUED else Known.STOPPING, stop=True)
        case State.HELD | State.RUNNING:
            return Verdict(known, stop=known in (Known.QUEUED, Known.STOPPING))
        case _:
            return Verdict(known)
