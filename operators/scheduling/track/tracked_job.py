"""What the scheduler keeps for one job, and the table of transitions from the job's state to changes for the loop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum

from emulator_runtime.domain.job import JobSpec
from emulator_runtime.domain.samples import RunSamples
from emulator_runtime.domain.step import StepTimes
from operators.scheduling.see.job_state import State
from scheduler_sims.interface.plan import WHOLE_DEVICE_MILLI, Allocation


class LoopPhase(StrEnum):
    """The phase of a job in the scheduler loop."""

    UNKNOWN = "unknown"
    """The loop doesn't have the job (yet)."""
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    FOREIGN = "foreign"
    """The job runs, but this scheduler did not start it or can't read its allocation: it is stopped before anything else."""
    ENDED = "ended"


class JobChange(StrEnum):
    """A change of a job that the loop must hear of."""

    ARRIVED = "arrived"
    ADOPTED = "adopted"
    """The job was started by an earlier process of this scheduler."""
    STARTED = "started"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class Transition:
    """The job's next phase, the changes to report to the loop in this order, and whether the job must be stopped now."""

    phase: LoopPhase
    changes: tuple[JobChange, ...] = ()
    stop: bool = False


_NO_RUN = RunSamples(0, 0, 1, 0)
HOLDING = (State.PLACED, State.RUNNING, State.PARTLY_RELEASED)
"""States in which at least one pod has its place and the job continues until it is stopped."""
_IN_LOOP = (LoopPhase.QUEUED, LoopPhase.STARTING, LoopPhase.RUNNING, LoopPhase.STOPPING)


def transition(phase: LoopPhase, state: State) -> Transition:
    """Pure and idempotent: the same state twice gives no changes the second time."""
    if phase in _IN_LOOP:
        return _in_loop(phase, state)
    if phase is LoopPhase.ENDED:
        return Transition(phase)
    if state is State.IDLE:
        return Transition(LoopPhase.QUEUED, (JobChange.ARRIVED,))
    if state in (State.FINISHED, State.FAILED, State.ABSENT):
        return Transition(LoopPhase.ENDED)
    if phase is LoopPhase.FOREIGN or state is State.PARTLY_RELEASED:
        return Transition(LoopPhase.FOREIGN, stop=state in HOLDING)
    adopted = {State.PLACED: LoopPhase.STARTING, State.RUNNING: LoopPhase.RUNNING, State.LEAVING: LoopPhase.STOPPING}
    return Transition(adopted[state], (JobChange.ADOPTED,)) if state in adopted else Transition(phase)


def _in_loop(phase: LoopPhase, state: State) -> Transition:
    started = (JobChange.STARTED,) if phase is LoopPhase.STARTING else ()
    match state:
        case State.FINISHED:
            return Transition(LoopPhase.ENDED, (*started, JobChange.FINISHED))
        case State.FAILED:
            return Transition(LoopPhase.ENDED, (JobChange.FAILED,))
        case State.ABSENT:
            return Transition(LoopPhase.ENDED, (JobChange.REMOVED,))
        case State.SUSPENDED:
            return Transition(LoopPhase.UNKNOWN, (JobChange.REMOVED,))
        case State.IDLE if phase is not LoopPhase.QUEUED:
            return Transition(LoopPhase.QUEUED, (JobChange.STOPPED,))
        case State.RUNNING if phase is LoopPhase.STARTING:
            return Transition(LoopPhase.RUNNING, started)
        case State.PARTLY_RELEASED:
            return Transition(phase if phase is LoopPhase.QUEUED else LoopPhase.STOPPING, stop=True)
        case State.PLACED | State.RUNNING:
            return Transition(phase, stop=phase in (LoopPhase.QUEUED, LoopPhase.STOPPING))
        case _:
            return Transition(phase)


@dataclass(slots=True)
class Pace:
    """The job's progress was `done` (see TrackedJob) at `at_ns` (emulated time); later steps of its `run` take the times of
    `times`, on a part of a device (`milli` thousandths) correspondingly longer. Whether the job has more of a shared device, the
    status will say.
    """

    done: int
    at_ns: int
    times: StepTimes
    run: RunSamples
    milli: int = WHOLE_DEVICE_MILLI

    def done_at(self, now_ns: int) -> int:
        """The progress that there should be by now, without the last step: it counts when the job has finished."""
        on_device_ns = (now_ns - self.at_ns) * self.milli // WHOLE_DEVICE_MILLI
        first = self.run.steps_at(self.done)
        steps = self.times.steps_done(first, on_device_ns) if on_device_ns > 0 else 0
        return max(self.done, self.run.done(min(first + steps, self.times.steps - 1)))


@dataclass(slots=True)
class TrackedJob:
    """`uid` and `key` (namespace/name) identify the EmuJob, `job_id` and `row` the job in the loop.

    `allocation`: the one that the loop assigned last. `since_ns`: when the newest run was started. `elastic`: its pods and its
    status count samples, else steps. `done`: its progress in that unit as last reported to the loop. `run`: which of these units
    the steps of its present or last run process, as the loop counts steps. `writing`: a start is being written, so the observed
    state is not meaningful. `problem`: why the loop doesn't have the job.
    """

    uid: str
    key: str
    job_id: str
    row: int
    phase: LoopPhase = LoopPhase.UNKNOWN
    spec: JobSpec | None = None
    allocation: Allocation | None = None
    pace: Pace | None = None
    elastic: bool = False
    done: int = 0
    run: RunSamples = _NO_RUN
    since_ns: int = -(2**62)
    writing: bool = False
    enforcing: asyncio.Task[None] | None = None
    problem: str = ""

    @property
    def steps_done(self) -> int:
        """As last reported to the loop."""
        return self.run.steps_at(self.done)

    def batch_size(self, allocation: Allocation | None) -> int:
        """The samples of one step with this allocation, as submitted without one; 0 if the job isn't elastic."""
        if not self.elastic or self.spec is None:
            return 0
        return (allocation.batch_size if allocation is not None else 0) or self.spec.batch_size

    def begin_run(self, steps_done: int, done: int, allocation: Allocation | None) -> None:
        """A run begins after so many steps, as the loop counts them, with this progress."""
        assert self.spec is not None
        length = self.spec.samples if self.elastic else self.spec.steps
        self.run = RunSamples(steps_done, done, self.batch_size(allocation) or 1, length)
