"""When a job's state is news: a table from what the loop knows of it to what it must hear, so that nothing is told twice."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum

from emulator_runtime.domain.job import JobSpec
from emulator_runtime.domain.step import StepTimes
from operators.scheduling.see.job_state import State
from scheduler_sims.interface.plan import Allocation


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


@dataclass(slots=True)
class Pace:
    """So many steps were done at `at_ns` (emulated), and from then on it goes by `times`."""

    steps: int
    at_ns: int
    times: StepTimes

    def steps_at(self, now_ns: int) -> int:
        """Steps that should be done; the last one only counts when its end is told."""
        done = self.times.steps_done(self.steps, now_ns - self.at_ns) if now_ns > self.at_ns else 0
        return min(self.steps + done, max(self.steps, self.times.steps - 1))


@dataclass(slots=True)
class TrackedJob:
    """`uid` and `key` (namespace/name) of the EmuJob. `allocation`: what it has by the loop's last word.

    `writing`: a start is on its way, so what is seen meanwhile means nothing. `told_steps`: as the loop knows them.
    `since_ns`: when its newest run was started. `problem`: why the loop doesn't know it.
    """

    uid: str
    key: str
    job_id: str
    row: int
    known: Known = Known.NOTHING
    spec: JobSpec | None = None
    allocation: Allocation | None = None
    pace: Pace | None = None
    told_steps: int = 0
    since_ns: int = -(2**62)
    writing: bool = False
    enforcing: asyncio.Task[None] | None = None
    problem: str = ""
