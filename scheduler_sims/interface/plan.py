"""The answer of a policy: a declarative plan of which job runs where.

A job that is absent from `Plan.allocations` is stopped, or stays queued. `plan.evolve(...)` derives the next plan from
the present one and keeps the difference, so that the loop doesn't compare all jobs at each event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from emulator_runtime.domain.mig import slowest_type
from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.sharing.demands import WHOLE_MILLI

WHOLE_DEVICE_MILLI = WHOLE_MILLI


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """A share of one device.

    `device` is a UUID; None means any free device of `gpu_type`, whichever others NVLink joins it to, and the cluster reports
    which one it took.
    `milli`: thousandths of the device. `memory_bytes`: the job's peak memory on it; 0 if not stated. `priority`: where jobs
    share the device by priority, a job with a higher one goes first.
    """

    device: str | None
    gpu_type: str
    milli: int = WHOLE_DEVICE_MILLI
    memory_bytes: int = 0
    priority: int = 0


@dataclass(frozen=True, slots=True)
class TaskPlacement:
    """One task of a job on one node."""

    node: str
    shares: tuple[DeviceShare, ...]
    cpu_milli: int
    memory_bytes: int = 0

    @property
    def gpu_type(self) -> str | None:
        """The type of the devices, of MIG instances that differ the slowest; None without devices."""
        return slowest_type([share.gpu_type for share in self.shares])

    @property
    def host(self) -> HostShare:
        """The CPUs and host memory of the task."""
        return HostShare(self.cpu_milli, self.memory_bytes)


@dataclass(frozen=True, slots=True)
class Allocation:
    """Where the tasks of a job run, all of them or none (gang). `configuration` names one of the job's configurations.

    `batch_size`: samples of one step on all GPUs together; 0: as many as the job was submitted with, whatever the number of GPUs.
    """

    configuration: str
    tasks: tuple[TaskPlacement, ...]
    batch_size: int = 0

    @property
    def gpus(self) -> int:
        tasks = self.tasks
        return len(tasks[0].shares) if len(tasks) == 1 else sum(len(task.shares) for task in tasks)

    @property
    def gpu_type(self) -> str | None:
        """The type of the devices, of MIG instances that differ the slowest; None without devices."""
        kinds = {share.gpu_type for task in self.tasks for share in task.shares}
        if len(kinds) == 1:  # policies ask for thousands of allocations in each round
            return kinds.pop()
        return slowest_type([share.gpu_type for task in self.tasks for share in task.shares])

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple([task.node for task in self.tasks])

    def same_place(self, other: Allocation) -> bool:
        """Whether a job can go from `other` to this allocation without a stop: same configuration, nodes, shares and batch size.

        A share without a device matches any device. CPUs and host memory may differ: they change while the job runs
        (`resized`).
        """
        return (
            (self.configuration, self.batch_size) == (other.configuration, other.batch_size)
            and len(self.tasks) == len(other.tasks)
            and all(_same_task(a, b) for a, b in zip(self.tasks, other.tasks, strict=True))
        )

    def same_division(self, other: Allocation) -> bool:
        """Whether each task has the same CPUs and host memory as in `other`."""
        return [task.host for task in self.tasks] == [task.host for task in other.tasks]

    def resized(self, like: Allocation) -> Allocation:
        """This allocation, on its own devices, with the CPUs and host memory of `like`; both are in the same place."""
        pairs = zip(self.tasks, like.tasks, strict=True)
        tasks = (replace(own, cpu_milli=new.cpu_milli, memory_bytes=new.memory_bytes) for own, new in pairs)
        return replace(self, tasks=tuple(tasks))


def _same_task(wanted: TaskPlacement, has: TaskPlacement) -> bool:
    return (
        wanted.node == has.node
        and len(wanted.shares) == len(has.shares)
        and all(
            w.gpu_type == h.gpu_type and w.milli == h.milli and w.device in (None, h.device)
            for w, h in zip(wanted.shares, has.shares, strict=True)
        )
    )


_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Plan:
    """Which jobs hold which allocation from now on. Built by `Plan.full(...)` or, cheaper, by `view.plan.evolve(...)`.

    `wake_at_s`: emulated time at which the policy is called again at the latest; None: at the next event.
    `state`: opaque to the loop, handed back as `view.state`. `reasons`: job id -> sentence for `--explain`.
    """

    wake_at_s: float | None = None
    state: Any = None
    reasons: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    base: Plan | None = field(default=None, repr=False)
    started: Mapping[str, Allocation] = field(default_factory=lambda: _NOTHING)
    stopped: frozenset[str] = frozenset()

    @classmethod
    def full(
        cls,
        allocations: Mapping[str, Allocation],
        *,
        wake_at_s: float | None = None,
        state: Any = None,
        reasons: Mapping[str, str] | None = None,
    ) -> Plan:
        return cls(wake_at_s, state, _NOTHING if reasons is None else reasons, started=dict(allocations))

    def evolve(
        self,
        *,
        start: Mapping[str, Allocation] | None = None,
        stop: Iterable[str] = (),
        wake_at_s: float | None = None,
        state: Any = None,
        reasons: Mapping[str, str] | None = None,
    ) -> Plan:
        """The next plan: jobs in `start` start, move or are resized, jobs in `stop` stop, all others continue."""
        return Plan(
            wake_at_s, state, _NOTHING if reasons is None else reasons, self, dict(start or {}), frozenset(stop)
        )

    @cached_property
    def allocations(self) -> Mapping[str, Allocation]:
        """All allocations of this plan, computed on first use."""
        if self.base is None:
            return self.started
        merged = {job: a for job, a in self.base.allocations.items() if job not in self.stopped}
        merged.update(self.started)
        return merged
