"""When a job's state is news: a table from what the loop knows of it to what it must hear, so that nothing is told twice."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum

from emulator_runtime.domain.job import JobSpec
from emulator_runtime.domain.step import StepTimes
from operators.scheduling.see.job_state import State
from scheduler_sims.interface.plan import Allocation


class LoopPhase(StrEnum):
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

    known: LoopPhase
    news: tuple[News, ...] = ()
    stop: bool = False


HOLDS = (State.HELD, State.RUNNING, State.TORN)
"""Something of it has a place, and it goes on unless it is stopped."""
_IN_LOOP = (LoopPhase.QUEUED, LoopPhase.STARTING, LoopPhase.RUNNING, LoopPhase.STOPPING)


def judge(known: LoopPhase, state: State) -> Verdict:
    """Pure. Told twice the same, it says nothing the second time."""
    if known in _IN_LOOP:
        return _of_known(known, state)
    if known is LoopPhase.ENDED:
        return Verdict(known)
    if state is State.IDLE:
        return Verdict(LoopPhase.QUEUED, (News.ARRIVED,))
    if state in (State.FINISHED, State.FAILED, State.ABSENT):
        return Verdict(LoopPhase.ENDED)
    if known is LoopPhase.STRANGE or state is State.TORN:
        return Verdict(LoopPhase.STRANGE, stop=state in HOLDS)
    adopted = {State.HELD: LoopPhase.STARTING, State.RUNNING: LoopPhase.RUNNING, State.LEAVING: LoopPhase.STOPPING}
    return Verdict(adopted[state], (News.ADOPTED,)) if state in adopted else Verdict(known)


def _of_known(known: LoopPhase, state: State) -> Verdict:
    started = (News.STARTED,) if known is LoopPhase.STARTING else ()
    match state:
        case State.FINISHED:
            return Verdict(LoopPhase.ENDED, (*started, News.FINISHED))
        case State.FAILED:
            return Verdict(LoopPhase.ENDED, (News.FAILED,))
        case State.ABSENT:
            return Verdict(LoopPhase.ENDED, (News.REMOVED,))
        case State.WITHHELD:
            return Verdict(LoopPhase.NOTHING, (News.REMOVED,))
        case State.IDLE if known is not LoopPhase.QUEUED:
            return Verdict(LoopPhase.QUEUED, (News.STOPPED,))
        case State.RUNNING if known is LoopPhase.STARTING:
            return Verdict(LoopPhase.RUNNING, started)
        case State.TORN:
            return Verdict(known if known is LoopPhase.QUEUED else LoopPhase.STOPPING, stop=True)
        case State.HELD | State.RUNNING:
            return Verdict(known, stop=known in (LoopPhase.QUEUED, LoopPhase.STOPPING))
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
    known: LoopPhase = LoopPhase.NOTHING
    spec: JobSpec | None = None
    allocation: Allocation | None = None
    pace: Pace | None = None
    told_steps: int = 0
    since_ns: int = -(2**62)
    writing: bool = False
    enforcing: asyncio.Task[None] | None = None
    problem: str = ""
