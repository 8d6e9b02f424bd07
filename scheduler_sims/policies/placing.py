"""Free capacity of the nodes, as a scratch copy on which policies try placements.

With it no policy counts devices by itself, and all policies place alike: a plan names the devices, and the same view gives
the same devices. A node is copied at its first change only, and computed values are reused as long as the cluster shows the
same NodeView (`like`), since policies ask at each event on clusters of hundreds of nodes.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from emulator_runtime.domain.errors import PolicyError
from emulator_runtime.domain.job import Configuration
from scheduler_sims.interface.plan import WHOLE_DEVICE_MILLI, Allocation, DeviceShare, TaskPlacement
from scheduler_sims.interface.view import ClusterView, DeviceView, JobView, NodeView


def main_configuration(view: ClusterView, job: JobView) -> Configuration:
    """The configuration that most policies use: the first one on GPUs, else the first one.

    A configuration that doesn't fit the empty cluster is skipped if another one fits.
    """
    if len(job.configurations) == 1:
        return job.configurations[0]
    by_preference = sorted(job.configurations, key=lambda c: not c.on_gpu)
    return next((c for c in by_preference if fits_somewhere(view, c)), by_preference[0])


def fits_somewhere(view: ClusterView, configuration: Configuration) -> bool:
    """Whether the empty cluster has room for all tasks of `configuration`, all devices healthy."""
    if configuration.min_tasks == 1:
        return any(_fits_empty(node, configuration) for node in view.nodes.values())
    kinds = Counter(
        tuple(d.gpu_type for d in node.devices if device_suits(d, configuration))[: configuration.gpus]
        for node in view.nodes.values()
        if _fits_empty(node, configuration)
    )
    return max(kinds.values(), default=0) >= configuration.min_tasks


def device_suits(device: DeviceView, configuration: Configuration) -> bool:
    """Whether the device has an allowed type and enough usable memory, free or not."""
    return configuration.fits_on(device.gpu_type, device.usable_memory_bytes)


def _fits_empty(node: NodeView, configuration: Configuration) -> bool:
    return (
        node.cpu_milli >= configuration.cpu_milli
        and node.memory_bytes >= configuration.memory_bytes
        and len(node.devices) >= configuration.gpus
        and (not configuration.gpus or sum(device_suits(d, configuration) for d in node.devices) >= configuration.gpus)
    )


class FreeSpace:
    """Free capacity of each node, for whole devices.

    Best fit: a job on GPUs goes to the node with the fewest free devices on which it fits, which avoids fragmentation; a job
    on CPUs prefers nodes without devices. Ties: the order of the view's nodes. Devices are taken in order of their index.
    A job of N tasks goes to the N best nodes by the same rule, all with the same types of devices; a job is never spread over
    more nodes than it asks for (consolidation; placement `yarn` of Tiresias' simulator).
    """

    def __init__(self, pristine: Mapping[str, _NodeSpace]) -> None:
        self._pristine = pristine
        self._nodes = dict(pristine)
        self._free_devices = sum(len(node.whole) for node in pristine.values())

    @classmethod
    def now(cls, view: ClusterView, like: FreeSpace | None = None) -> FreeSpace:
        """The capacity that is free now, without that of stopping jobs. `like`: an earlier copy to reuse unchanged nodes of."""
        known: Mapping[str, _NodeSpace] = like._pristine if like else {}
        pristine = {}
        for name, node in view.nodes.items():
            old = known.get(name)
            pristine[name] = old if old and old.view is node else _NodeSpace.now(node)
        return cls(pristine)

    @classmethod
    def empty(cls, view: ClusterView) -> FreeSpace:
        """The capacity of the empty cluster, without unhealthy devices."""
        return cls({name: _NodeSpace.empty(node) for name, node in view.nodes.items()})

    def place(
        self, configuration: Configuration, *, node: str | None = None, device: str | None = None
    ) -> Allocation | None:
        """Places all tasks and takes their capacity; None, with nothing taken, if one of them doesn't fit.

        `node`, `device` (UUID) restrict the search for a job of one task.
        """
        if configuration.total_gpus > self._free_devices:
            return None
        if configuration.min_tasks > 1:
            chosen = self._several(configuration)
        else:
            best = self._best(configuration, node, device)
            chosen = [] if best is None else [best]
        if not chosen:
            return None
        allocation = Allocation(configuration.name, tuple(space.task(configuration, device) for space in chosen))
        self.take(allocation)
        return allocation

    @property
    def nodes(self) -> Iterable[str]:
        """The names of the nodes."""
        return self._nodes.keys()

    def copy(self) -> FreeSpace:
        """An independent copy."""
        return FreeSpace(dict(self._nodes))

    def fits(self, configuration: Configuration, node: str, without: Sequence[Allocation] = ()) -> bool:
        """Whether `place` would succeed on `node` after `without` were released; changes nothing."""
        tasks = [task for allocation in without for task in allocation.tasks if task.node == node]
        return self._node(node).fits_without(configuration, tasks)

    def free(self, node: str) -> tuple[int, int]:
        """Whole devices and thousandths of CPUs that are free on a node."""
        space = self._node(node)
        return len(space.whole), space.cpu_milli

    def has(self, allocation: Allocation) -> bool:
        """Whether all that `allocation` names is free."""
        return all(self._node(task.node).lacks(task) is None for task in _per_node(allocation))

    def take(self, allocation: Allocation) -> None:
        """Occupies what `allocation` names. Raises PolicyError if part of it isn't free; then nothing is taken."""
        tasks = _per_node(allocation)
        for task in tasks:
            if lack := self._node(task.node).lacks(task):
                raise PolicyError(lack)
        for task in tasks:
            self._change(task, -1)

    def release(self, allocation: Allocation) -> None:
        """Releases what `allocation` names. Raises PolicyError for a node or device that isn't in the cluster."""
        for task in allocation.tasks:
            self._change(task, +1)

    def _best(self, configuration: Configuration, node: str | None, device: str | None) -> _NodeSpace | None:
        best: _NodeSpace | None = None
        nodes = self._nodes.values() if node is None else (self._node(node),)
        for candidate in nodes:
            better = best is None or candidate.crowding < best.crowding
            if better and candidate.fits(configuration, device):
                best = candidate
        return best

    def _several(self, configuration: Configuration) -> list[_NodeSpace]:
        """A node for each task, all with the same device types; empty if there are too few such nodes."""
        fitting = [space for space in self._nodes.values() if space.fits(configuration, None)]
        alike: dict[tuple[str, ...], list[_NodeSpace]] = {}
        for space in sorted(fitting, key=lambda space: space.crowding):
            kind = tuple(d.gpu_type for d in space.usable(configuration, None)[: configuration.gpus])
            alike.setdefault(kind, []).append(space)
        enough = (spaces for spaces in alike.values() if len(spaces) >= configuration.min_tasks)
        return next(enough, [])[: configuration.min_tasks]

    def _node(self, name: str) -> _NodeSpace:
        if name not in self._nodes:
            raise PolicyError(f"node {name!r} is not in the cluster; it has {', '.join(self._nodes) or 'no nodes'}")
        return self._nodes[name]

    def _change(self, task: TaskPlacement, sign: int) -> None:
        node = self._node(task.node)
        if node is self._pristine[task.node]:
            node = self._nodes[task.node] = node.copy()
        before = len(node.whole)
        node.change(task, sign)
        self._free_devices += len(node.whole) - before


@dataclass(slots=True)
class _NodeSpace:
    """One node: free host resources, healthy devices that are free as a whole, free thousandths of the other devices."""

    view: NodeView
    cpu_milli: int
    memory_bytes: int
    whole: list[DeviceView]
    partly: dict[str, int]

    @classmethod
    def now(cls, node: NodeView) -> _NodeSpace:
        free = {d.uuid: d.free_milli for d in node.devices}
        return cls(node, node.free_cpu_milli, node.free_memory_bytes, *_split(node, free))

    @classmethod
    def empty(cls, node: NodeView) -> _NodeSpace:
        free = {d.uuid: WHOLE_DEVICE_MILLI for d in node.devices}
        return cls(node, node.cpu_milli, node.memory_bytes, *_split(node, free))

    def copy(self) -> _NodeSpace:
        return _NodeSpace(self.view, self.cpu_milli, self.memory_bytes, list(self.whole), dict(self.partly))

    @property
    def crowding(self) -> tuple[bool, int]:
        """Sort key, smaller is better: nodes without devices first (only CPU configurations fit there), then by free devices."""
        return (bool(self.view.devices), len(self.whole))

    def task(self, configuration: Configuration, device: str | None) -> TaskPlacement:
        """A task on this node, where it fits, on the first suitable devices."""
        shares = tuple(
            DeviceShare(d.uuid, d.gpu_type, WHOLE_DEVICE_MILLI, configuration.device_memory_bytes)
            for d in self.usable(configuration, device)[: configuration.gpus]
        )
        return TaskPlacement(self.view.name, shares, configuration.cpu_milli, configuration.memory_bytes)

    def usable(self, configuration: Configuration, device: str | None) -> list[DeviceView]:
        return [d for d in self.whole if device in (None, d.uuid) and device_suits(d, configuration)]

    def fits(self, configuration: Configuration, device: str | None) -> bool:
        return (
            len(self.whole) >= configuration.gpus
            and self.cpu_milli >= configuration.cpu_milli
            and self.memory_bytes >= configuration.memory_bytes
            and (not configuration.gpus or len(self.usable(configuration, device)) >= configuration.gpus)
        )

    def fits_without(self, configuration: Configuration, tasks: Sequence[TaskPlacement]) -> bool:
        """Whether `configuration` fits after `tasks` have ended."""
        if (
            self.cpu_milli + sum(task.cpu_milli for task in tasks) < configuration.cpu_milli
            or self.memory_bytes + sum(task.memory_bytes for task in tasks) < configuration.memory_bytes
            or len(self.whole) + sum(len(task.shares) for task in tasks) < configuration.gpus
        ):
            return False
        if not configuration.gpus:
            return True
        free = dict(self.partly) | {d.uuid: WHOLE_DEVICE_MILLI for d in self.whole}
        for task in tasks:
            for device, milli in _shares(task):
                free[device] = free.get(device, 0) + milli
        whole = (d for d in self.view.devices if d.healthy and free.get(d.uuid, 0) >= WHOLE_DEVICE_MILLI)
        return sum(device_suits(d, configuration) for d in whole) >= configuration.gpus

    def lacks(self, task: TaskPlacement) -> str | None:
        """A sentence about the first resource that `task` wants and that isn't free; None if all are free."""
        if task.cpu_milli > self.cpu_milli or task.memory_bytes > self.memory_bytes:
            return f"node {task.node} has not enough free CPUs or memory for what the plan places there"
        wanted: dict[str, int] = {}
        for device, milli in _shares(task):
            wanted[device] = wanted.get(device, 0) + milli
            if wanted[device] > self._free_milli(device):
                return f"device {device} of node {task.node} is not free, but the plan places a job on it"
        return None

    def change(self, task: TaskPlacement, sign: int) -> None:
        self.cpu_milli += sign * task.cpu_milli
        self.memory_bytes += sign * task.memory_bytes
        for device, milli in _shares(task):
            self._set(device, self._free_milli(device) + sign * milli)

    def _free_milli(self, device: str) -> int:
        if device in self.partly:
            return self.partly[device]
        return WHOLE_DEVICE_MILLI if any(d.uuid == device for d in self.whole) else 0

    def _set(self, device: str, milli: int) -> None:
        view = next((d for d in self.view.devices if d.uuid == device), None)
        if view is None:
            raise PolicyError(
                f"node {self.view.name} has no device {device}; its devices are listed in NodeView.devices"
            )
        self.whole = [d for d in self.whole if d.uuid != device]
        self.partly.pop(device, None)
        if not view.healthy:
            return
        if milli >= WHOLE_DEVICE_MILLI:
            insort(self.whole, view, key=lambda d: d.index)
        elif milli > 0:
            self.partly[device] = milli


def _split(node: NodeView, free_milli: Mapping[str, int]) -> tuple[list[DeviceView], dict[str, int]]:
    healthy = [d for d in node.devices if d.healthy]
    whole = [d for d in healthy if free_milli[d.uuid] >= WHOLE_DEVICE_MILLI]
    partly = {d.uuid: free_milli[d.uuid] for d in healthy if 0 < free_milli[d.uuid] < WHOLE_DEVICE_MILLI}
    return sorted(whole, key=lambda d: d.index), partly


def _per_node(allocation: Allocation) -> list[TaskPlacement]:
    """The tasks, those on the same node merged into one."""
    if len(allocation.tasks) == 1:
        return list(allocation.tasks)
    merged: dict[str, TaskPlacement] = {}
    for task in allocation.tasks:
        one = merged.get(task.node, TaskPlacement(task.node, (), 0))
        merged[task.node] = TaskPlacement(
            task.node, one.shares + task.shares, one.cpu_milli + task.cpu_milli, one.memory_bytes + task.memory_bytes
        )
    return list(merged.values())


def _shares(task: TaskPlacement) -> Iterator[tuple[str, int]]:
    for share in task.shares:
        if share.device is None:
            raise PolicyError(f"a share on node {task.node} names no device; give DeviceShare.device the UUID of one")
        yield share.device, share.milli
