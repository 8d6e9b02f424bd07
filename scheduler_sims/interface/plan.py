"""What a policy answers with: a declarative plan of which job runs where.

A job that is absent from `Plan.allocations` is stopped (or stays queued). `plan.evolve(...)` makes the next plan from
this one and remembers the difference, so that the loop needs no comparison of all jobs at each event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from emulator_runtime.domain.sensitivity import HostShare

WHOLE_DEVICE_MILLI = 1000


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """A share of one device. `device` is a UUID, or None: any free one of `gpu_type`, the cluster reports which.

    `milli` is thousandths of a device; `memory_bytes` the job's peak on it (0: not stated).
    """

    device: str | None
    gpu_type: str
    milli: int = WHOLE_DEVICE_MILLI
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TaskPlacement:
    """One task of a job on one node."""

    node: str
    shares: tuple[DeviceShare, ...]
    cpu_milli: int
    memory_bytes: int = 0

    @property
    def gpu_type(self) -> str | None:
        """The type of its devices (of the first one), None on CPUs."""
        return self.shares[0].gpu_type if self.shares else None

    @property
    def host(self) -> HostShare:
        """What it has of the node beside devices."""
        return HostShare(self.cpu_milli, self.memory_bytes)


@dataclass(frozen=True, slots=True)
class Allocation:
    """Where all tasks of a job run: all or none (gang). `configuration` names one of the job's configurations."""

    configuration: str
    tasks: tuple[TaskPlacement, ...]
    batch_size: int | None = None
    group: str | None = None

    @property
    def gpus(self) -> int:
        return sum(len(task.shares) for task in self.tasks)

    @property
    def gpu_type(self) -> str | None:
        """The type of its devices (of the first one), None on CPUs."""
        return next((share.gpu_type for task in self.tasks for share in task.shares), None)

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(task.node for task in self.tasks)

    def same_place(self, other: Allocation) -> bool:
        """Whether a job that has `other` needn't stop for this one: same configuration, nodes, shares; None fits any device.

        Its CPUs and host memory may differ: they can be divided anew while the job runs (`resized`).
        """
        return (
            self.configuration == other.configuration
            and self.batch_size == other.batch_size
            and len(self.tasks) == len(other.tasks)
            and all(_same_task(a, b) for a, b in zip(self.tasks, other.tasks, strict=True))
        )

    def same_division(self, other: Allocation) -> bool:
        """Whether each task has the same CPUs and host memory as in `other`."""
        return [task.host for task in self.tasks] == [task.host for task in other.tasks]

    def resized(self, like: Allocation) -> Allocation:
        """This allocation, on its own devices, with the CPUs and host memory of `like`; both are in the same place."""
        pairs = zip(self.tasks, like.tasks, strict=True)
        tasks = (replace(mine, cpu_milli=its.cpu_milli, memory_bytes=its.memory_bytes) for mine, its in pairs)
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
    """Job id -> allocation, when to be asked again at the latest, what to remember, and a sentence per job for `--explain`.

    Made by `Plan.full(...)` or, cheaper, by `view.plan.evolve(...)`. `state` is opaque to the loop and comes back as
    `view.state`. `wake_at_s` is emulated time; None: only at the next event.
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
        return cls(wake_at_s, state, reasons or _NOTHING, started=dict(allocations))

    def evolve(
        self,
        *,
        start: Mapping[str, Allocation] | None = None,
        stop: Iterable[str] = (),
        wake_at_s: float | None = None,
        state: Any = None,
        reasons: Mapping[str, str] | None = None,
    ) -> Plan:
        """The plan that follows this one: these jobs start, move or are resized, those stop, all others stay."""
        return Plan(wake_at_s, state, reasons or _NOTHING, self, dict(start or {}), frozenset(stop))

    @cached_property
    def allocations(self) -> Mapping[str, Allocation]:
        """All allocations of this plan (built on first use)."""
        if self.base is None:
            return self.started
        merged = {job: a for job, a in self.base.allocations.items() if job not in self.stopped}
        merged.update(self.started)
        return merged
