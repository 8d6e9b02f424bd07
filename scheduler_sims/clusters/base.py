"""The interface between the scheduler loop and a cluster (simulated, local or Kubernetes): actions in, events out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from emulator_runtime.domain.job import JobSpec
from emulator_runtime.domain.samples import RunSamples
from emulator_runtime.domain.units import to_ns
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.interface.plan import WHOLE_DEVICE_MILLI, Allocation
from scheduler_sims.record import LagAccount


class Happening(StrEnum):
    """Kinds of events."""

    STARTED = "started"
    """The allocation took effect: the job holds its devices."""
    STOPPED = "stopped"
    """After a stop: the step has ended, the checkpoint is written, the devices are free."""
    FINISHED = "finished"
    FAILED = "failed"
    REMOVED = "removed"
    """The job left the cluster before its end: it was deleted or suspended by a user."""
    SUBMITTED = "submitted"
    PROGRESS = "progress"
    """The number of steps done by a waiting job was updated."""
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
"""Order of simultaneous events: those that free devices before those that take them; then by row of the job."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a job at `at_ns` of emulated time (on a real cluster: when it was observed).

    `steps_done`: finished steps over all runs; `samples_done`: finished samples, None: those of the steps. The loop may receive
    the event later: `at_ns` of FINISHED is the end of the last step, but a cluster delivers it when the devices are free.
    """

    at_ns: int
    what: Happening
    job_id: str
    row: int
    steps_done: int = 0
    reason: str = ""
    samples_done: int | None = None

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
    later_tasks: int = 0
    """Number of tasks that the plan starts after the tasks of this start."""
    samples_done: int | None = None
    """Where the run begins; None: after `steps_done` steps as submitted."""

    @property
    def samples(self) -> RunSamples:
        """Which samples the steps of the run process."""
        own, batch_size = self.job.batch_size, self.allocation.batch_size
        first = self.steps_done * own if self.samples_done is None else self.samples_done
        return RunSamples(self.steps_done, first, batch_size or own, self.job.samples)

    def begin_ns(self, costs: ClusterCosts) -> int:
        """When the first step begins, if no other start is served first."""
        begin_ns = self.at_ns + to_ns(costs.begin_s(resumed=self.steps_done > 0))
        return begin_ns + to_ns(costs.shared_start_s) * self.later_tasks


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a cluster can do with a plan; the loop refuses anything else before it acts.

    `sharing`: how each device that several jobs may hold is shared, by UUID. `any_batch`: a job of a model may have another batch
    size than it was submitted with; if False, an elastic one only.
    """

    sharing: Mapping[str, str] = field(default_factory=dict)
    any_batch: bool = True

    def refusal(self, job: JobSpec, allocation: Allocation) -> str:
        """Why the cluster can't carry out an allocation with all devices named, and how it could; empty if it can."""
        batch_size = allocation.batch_size
        if batch_size and not self.any_batch and batch_size != job.batch_size and not job.elastic:
            return (
                f"steps of {batch_size} samples (submitted: {job.batch_size}); on Kubernetes the batch size of a job "
                "is fixed unless it is elastic. Give it a range of GPUs (max_gpus in a workload, maxEmuGPU in an EmuJob)"
            )
        shares = [share for task in allocation.tasks for share in task.shares]
        shared = [share for share in shares if share.device in self.sharing] if self.sharing else []
        if shared and len(shared) < len(shares):
            return "devices of which some are shared and some exclusive; plan devices of one kind"
        if not shared and any(share.milli != WHOLE_DEVICE_MILLI for share in shares):
            return (
                "a part of a device that is exclusive; plan whole devices, or share the device ('sharing: mps' of its node in a "
                "cluster file, spec.sharing of its pool on Kubernetes)"
            )
        return ""

    def modes_of(self, allocation: Allocation) -> dict[str, str]:
        """How each device of an allocation is shared, by UUID; empty if the job has whole devices for itself."""
        if not self.sharing:
            return {}
        uuids = [share.device for task in allocation.tasks for share in task.shares if share.device is not None]
        return {uuid: self.sharing[uuid] for uuid in uuids if uuid in self.sharing}


class _Line:
    """A queue with a constant service time. Requests before time 0 were served before the run began."""

    def __init__(self, each_ns: int) -> None:
        self.each_ns = each_ns
        self._free_ns = 0

    def turn_ns(self, at_ns: int, number: int = 1) -> int:
        """When the service of the last of `number` requests begins that arrive at `at_ns`."""
        if at_ns < 0:
            return at_ns
        last_ns = max(at_ns, self._free_ns) + self.each_ns * (number - 1)
        self._free_ns = last_ns + self.each_ns
        return last_ns


class StartQueue:
    """Serves starts in order of arrival, each for `serial_start_s` + `shared_start_s`.

    A burst of starts queues (one API server, one image store, one kubelet); a single start doesn't. Starts of one plan share
    the machines equally, so the first one has no advantage. Each task of a gang is a start, and the gang begins with its last
    task.

    Example: serial_start_s 0.3, shared_start_s 0, start_s 5: of three one-task jobs started at 0 s the first steps begin at
    5.0, 5.3 and 5.6 s.
    """

    def __init__(self, costs: ClusterCosts) -> None:
        self._costs = costs
        self._line = _Line(to_ns(costs.serial_start_s) + to_ns(costs.shared_start_s))

    def begin_ns(self, start: Start) -> int:
        """Serves `start`; returns when its first step begins."""
        return start.begin_ns(self._costs) + self._turn_ns(start) - start.at_ns

    def turns_ns(self, start: Start) -> list[int]:
        """Serves `start`; returns when the machines begin with each of its tasks (costs `host_slots`)."""
        last_ns, tasks = self._turn_ns(start), len(start.allocation.tasks)
        return [last_ns - self._line.each_ns * later for later in reversed(range(tasks))]

    def _turn_ns(self, start: Start) -> int:
        return self._line.turn_ns(start.at_ns, len(start.allocation.tasks))


class StopQueue:
    """Delivers stops one after the other, `serial_stop_s` apart; a job continues until its stop is delivered.

    A gang is one stop, since one request ends all its tasks.
    """

    def __init__(self, costs: ClusterCosts) -> None:
        self._line = _Line(to_ns(costs.serial_stop_s))
        self._shared_ns = to_ns(costs.shared_stop_s)

    def delivery_ns(self, now_ns: int) -> int:
        """When a stop requested at `now_ns` is delivered."""
        return self._line.turn_ns(now_ns)

    def shared_ns(self, others: int) -> int:
        """Additional time until the devices are free, with `others` other stops in the plan."""
        return self._shared_ns * others


class Cluster(Protocol):
    """What the loop needs from a cluster. All times are emulated nanoseconds since the run began."""

    name: str

    @property
    def capabilities(self) -> Capabilities:
        """What it can do now; the loop checks each plan against it."""
        ...

    def prepare(self, jobs: Sequence[JobSpec]) -> None:
        """Starts the cluster for these jobs; emulated time begins when this returns."""
        ...

    def now_ns(self) -> int: ...

    def wait(self, until_ns: int | None) -> list[Event]:
        """The next events, in order; an empty list if `until_ns` comes first (None: wait for an event).

        A simulated cluster returns an empty list for None if no event can happen any more.
        """
        ...

    def start(self, start: Start) -> None:
        """Begins a run of a job, as `capabilities` allow it. Raises a retryable error if the cluster can't at the moment."""
        ...

    def stop(self, job_id: str, others: int = 0) -> None:
        """Ends a run after its current step; STOPPED (or FINISHED) follows. `others`: number of other stops in the plan."""
        ...

    def resize(self, job_id: str, allocation: Allocation) -> None:
        """Gives a run the CPUs and host memory of `allocation` (same devices), immediately and without an event.

        The step in progress keeps its speed; the next step has the new one. Without effect on a run that is about to end.
        """
        ...

    def steps_done(self, job_id: str) -> int:
        """Steps of a job that holds devices, as far as the cluster knows."""
        ...

    def settle(self) -> None:
        """After the end of all jobs: waits for the last jobs' reports."""
        ...

    def lag(self) -> dict[str, LagAccount]:
        """How late the cluster was against its own deadlines, by kind; empty if it can't be late."""
        ...

    def notes(self) -> tuple[str, ...]:
        """Sentences about incidents of the cluster itself, such as a restarted manager."""
        ...

    def close(self) -> None:
        """Ends everything that `prepare` started. May be called twice."""
        ...
