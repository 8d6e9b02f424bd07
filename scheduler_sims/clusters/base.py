"""The interface that the scheduler loop drives, whichever cluster is behind it, and the events that come back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from emulator_runtime.domain.job import JobSpec
from emulator_runtime.domain.units import to_ns
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.interface.plan import Allocation
from scheduler_sims.record import LagAccount


class Happening(StrEnum):
    """What can happen to a job on a cluster."""

    STARTED = "started"
    """Its allocation took effect: the job holds its devices."""
    STOPPED = "stopped"
    """After a stop: the step ended, the checkpoint is written, the devices are free."""
    FINISHED = "finished"
    FAILED = "failed"
    REMOVED = "removed"
    """It left the cluster unfinished: somebody deleted it, or holds it back."""
    SUBMITTED = "submitted"
    PROGRESS = "progress"
    """More is known of the steps that a waiting job has done."""
    NODES = "node"


ORDER = {
    Happening.NODES: -1,
    Happening.PROGRESS: -1,
    Happening.FINISHED: 0,
    Happening.FAILED: 1,
    Happening.REMOVED: 1,
    Happening.STOPPED: 2,
    Happening.STARTED: 3,
    Happening.SUBMITTED: 4,
}
"""Simultaneous events: what frees devices comes before what takes them; then the row of the job."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened to a job at `at_ns` of emulated time (when it was seen, on a real cluster).

    `steps_done` counts the job's finished steps over all its runs. The loop may hear of it later: `at_ns` of FINISHED is the
    end of the last step, but a cluster tells it when the devices are free.
    """

    at_ns: int
    what: Happening
    job_id: str
    row: int
    steps_done: int = 0
    reason: str = ""

    @property
    def order(self) -> tuple[int, int, int]:
        """The one total order of events."""
        return (self.at_ns, ORDER[self.what], self.row)


@dataclass(frozen=True, slots=True)
class Start:
    """Start `job` with `allocation` (all devices named) at `at_ns`; `steps_done` > 0 resumes from its checkpoint."""

    job: JobSpec
    allocation: Allocation
    at_ns: int
    steps_done: int
    behind: int = 0
    """How many tasks its plan starts after this one's."""

    def begin_ns(self, costs: ClusterCosts) -> int:
        """When its first step begins, when no other start is served before."""
        begin_ns = self.at_ns + to_ns(costs.begin_s(resumed=self.steps_done > 0))
        return begin_ns + to_ns(costs.shared_start_s) * self.behind


class _Line:
    """Served one after the other, each for `each_ns`. What comes before time 0 had its turn before the run began."""

    def __init__(self, each_ns: int) -> None:
        self._each_ns = each_ns
        self._free_ns = 0

    def turn_ns(self, at_ns: int, number: int = 1) -> int:
        """When it is the turn of the last of `number` that come at `at_ns`."""
        if at_ns < 0:
            return at_ns
        last_ns = max(at_ns, self._free_ns) + self._each_ns * (number - 1)
        self._free_ns = last_ns + self._each_ns
        return last_ns


class StartQueue:
    """Starts are served one after the other, each for `serial_start_s` and `shared_start_s`, in the order in which they come.

    So a burst of starts waits in line (one API server, one image store, one kubelet), while single ones don't. Those of one
    plan share what is shared, so the first of them gains nothing by being first. Each task of a gang is a start of its own, and
    the gang begins with its last one.
    """

    def __init__(self, costs: ClusterCosts) -> None:
        self._costs = costs
        self._line = _Line(to_ns(costs.serial_start_s) + to_ns(costs.shared_start_s))

    def begin_ns(self, start: Start) -> int:
        """Serve `start`; answers when its first step begins."""
        turn_ns = self._line.turn_ns(start.at_ns, len(start.allocation.tasks))
        return start.begin_ns(self._costs) + turn_ns - start.at_ns


class StopQueue:
    """Stops are told one after the other, each for `serial_stop_s`; a job works on until it is told.

    A gang is one stop, however many starts it was: one word ends its tasks.
    """

    def __init__(self, costs: ClusterCosts) -> None:
        self._line = _Line(to_ns(costs.serial_stop_s))
        self._shared_ns = to_ns(costs.shared_stop_s)

    def told_ns(self, now_ns: int) -> int:
        """When the job is told that is to stop now."""
        return self._line.turn_ns(now_ns)

    def shared_ns(self, others: int) -> int:
        """By how much later its devices are free, with so many other stops in its plan."""
        return self._shared_ns * others


class Cluster(Protocol):
    """What the loop needs of a cluster. All times are emulated nanoseconds since the run began."""

    name: str

    def prepare(self, jobs: Sequence[JobSpec]) -> None:
        """Bring the cluster up and make it ready for these jobs; emulated time starts when this returns."""
        ...

    def now_ns(self) -> int: ...

    def wait(self, until_ns: int | None) -> list[Event]:
        """The next events, in order; an empty list when `until_ns` came first (None: wait for an event).

        A simulated cluster answers None with an empty list when nothing can ever happen any more.
        """
        ...

    def start(self, start: Start) -> None:
        """Begin a job's run. Raises a retryable error where the cluster can't just now."""
        ...

    def stop(self, job_id: str, others: int = 0) -> None:
        """Ask a run to end after its current step; STOPPED (or FINISHED) follows. `others`: how many more its plan stops."""
        ...

    def resize(self, job_id: str, allocation: Allocation) -> None:
        """Give a run the CPUs and host memory of `allocation` (its own devices), at once and without an event.

        The step in progress keeps its speed, the next one has the new. No matter for a run that is about to end.
        """
        ...

    def steps_done(self, job_id: str) -> int:
        """Steps of a job that holds devices, as far as the cluster knows."""
        ...

    def settle(self) -> None:
        """All jobs have ended: wait for what is still on its way (the last jobs' reports)."""
        ...

    def lag(self) -> dict[str, LagAccount]:
        """How late the cluster was against its own deadlines, by kind; empty where it can't be late."""
        ...

    def notes(self) -> tuple[str, ...]:
        """Sentences about what happened to the cluster itself (a manager was restarted)."""
        ...

    def close(self) -> None:
        """End everything that `prepare` began. Can be called twice."""
        ...
