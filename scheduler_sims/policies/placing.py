"""Free capacity of the nodes, as a scratch copy on which policies try placements.

With it no policy counts devices by itself, and all policies place alike: a plan names the devices, and the same view gives
the same devices. Policies ask at each event on clusters of hundreds of nodes, so nodes are indexed by their free devices, and
a policy that keeps its FreeSpace reads only the nodes that changed (`follow`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from emulator_runtime.domain.errors import PolicyError
from emulator_runtime.domain.job import Configuration
from scheduler_sims.interface.plan import WHOLE_DEVICE_MILLI, Allocation, DeviceShare, TaskPlacement
from scheduler_sims.interface.view import ClusterView, DeviceView, JobView, NodeTable, NodeView

_index = attrgetter("index")
"""Of a device on its node."""
_position = attrgetter("position")
"""Of a node."""


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
    known = view.nodes.sizes if isinstance(view.nodes, NodeTable) else None
    if known is None:
        return _fits_somewhere(view, configuration)
    key = (fits_somewhere, configuration)
    if key not in known:
        known[key] = _fits_somewhere(view, configuration)
    return bool(known[key])


def _fits_somewhere(view: ClusterView, configuration: Configuration) -> bool:
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

    def __init__(self, nodes: Iterable[_NodeSpace], source: Mapping[str, NodeView] | None = None) -> None:
        self._nodes = {node.view.name: node for node in nodes}
        self._source = source
        self._index = NodeIndex(self._nodes.values())
        self._free_devices = sum(len(node.whole) for node in self._nodes.values())
        self._touched: set[str] = set()
        self._hopeless: set[Configuration] = set()
        """Configurations that fit nowhere, until something is released."""
        self.version = 0
        """Grows with each release."""
        self.freed: list[str] = []
        """The nodes of all releases, in order, for a caller who remembers what was in vain and clears it at times."""
        self._trial: dict[str, _NodeSpace] | None = None

    @classmethod
    def now(cls, view: ClusterView) -> FreeSpace:
        """The capacity that is free now, without that of stopping jobs."""
        return cls(map(_NodeSpace.now, view.nodes.values()), view.nodes)

    @classmethod
    def empty(cls, view: ClusterView) -> FreeSpace:
        """The capacity of the empty cluster, without unhealthy devices."""
        return cls(map(_NodeSpace.empty, view.nodes.values()))

    def follow(self, view: ClusterView) -> FreeSpace:
        """The capacity that is free now, as `now` gives it. This object becomes that, if only a few nodes differ: those that
        changed since the view from which it was made, and those that were tried. Don't use it for an earlier view afterwards."""
        if view.changed_nodes is None or view.nodes is not self._source:
            return FreeSpace.now(view)
        touched, self._touched = self._touched, set()
        for name in view.changed_nodes | touched:
            self._renew(self._nodes[name], view.nodes[name])
        return self

    def place(
        self, configuration: Configuration, *, node: str | None = None, device: str | None = None
    ) -> Allocation | None:
        """Places all tasks and takes their capacity; None, with nothing taken, if one of them doesn't fit.

        `node`, `device` (UUID) restrict the search for a job of one task.
        """
        if configuration.gpus * configuration.min_tasks > self._free_devices:
            return None
        if self._hopeless and configuration in self._hopeless:  # its hash takes as long as the search for a node
            return None
        if configuration.min_tasks > 1:
            chosen = self._several(configuration)
        else:
            best = self._best(configuration, node, device)
            chosen = [] if best is None else [best]
        if not chosen:
            if node is None and device is None:
                self._hopeless.add(configuration)
            return None
        allocation = Allocation(configuration.name, tuple([space.task(configuration, device) for space in chosen]))
        for task in allocation.tasks:
            self._change(task, -1)
        return allocation

    @property
    def nodes(self) -> Iterable[str]:
        """The names of the nodes."""
        return self._nodes.keys()

    def copy(self) -> FreeSpace:
        """An independent copy."""
        return FreeSpace(node.copy() for node in self._nodes.values())

    def fits(self, configuration: Configuration, node: str, without: Sequence[TaskPlacement] = ()) -> bool:
        """Whether `place` would succeed on `node` after `without`, tasks on that node, have ended; changes nothing."""
        return self._node(node).fits_without(configuration, without)

    def free(self, node: str) -> tuple[int, int]:
        """Whole devices and thousandths of CPUs that are free on a node."""
        space = self._node(node)
        return len(space.whole), space.cpu_milli

    def has(self, allocation: Allocation) -> bool:
        """Whether all that `allocation` names is free."""
        return all(self._node(task.node).lacks(task) is None for task in _per_node(allocation))

    def may_fit(self, configuration: Configuration, node: str, devices: int) -> bool:
        """Whether the node has enough devices if that many shares of them were released, whatever else the job needs."""
        return len(self._node(node).whole) + devices >= configuration.gpus

    def fits_after(self, configuration: Configuration, leaving: Iterable[Allocation]) -> bool:
        """Whether `place` would succeed, on any nodes, after `leaving` were released; changes nothing."""
        self._trial, hopeless = {}, self._hopeless
        try:
            self._hopeless = set()
            for allocation in leaving:
                self.release(allocation)
            return self.place(configuration) is not None
        finally:
            trial, self._trial = self._trial, None
            for name, before in trial.items():
                self._replace(name, before)
            self._hopeless = hopeless

    def takes(self, allocation: Allocation) -> bool:
        """Occupies what `allocation` names if all of it is free; returns whether it was."""
        try:
            self.take(allocation)
        except PolicyError:
            return False
        return True

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
            self._freed(task.node)
            self._change(task, +1)

    def _best(self, configuration: Configuration, node: str | None, device: str | None) -> _NodeSpace | None:
        for each in self._index.from_fullest(configuration.gpus) if node is None else (self._node(node),):
            if each.fits(configuration, device):
                return each
        return None

    def _several(self, configuration: Configuration) -> list[_NodeSpace]:
        """A node for each task, all with the same device types; empty if there are too few such nodes."""
        alike: dict[tuple[str, ...], list[_NodeSpace]] = {}
        for space in self._index.from_fullest(configuration.gpus):
            if space.fits(configuration, None):
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
        if self._trial is not None and task.node not in self._trial:
            self._trial[task.node] = node.copy()
        self._touched.add(task.node)
        before = len(node.whole)
        node.change(task, sign)
        self._count(node, before)

    def _replace(self, name: str, node: _NodeSpace) -> None:
        """Something may be free in `node` that wasn't: then a configuration that fitted nowhere may fit."""
        old = self._nodes[name]
        if not old.covers(node):
            self._freed(name)
        node.position = old.position
        self._nodes[name] = node
        self._index.drop(old, len(old.whole))
        self._index.add(node)
        self._free_devices += len(node.whole) - len(old.whole)

    def _renew(self, node: _NodeSpace, view: NodeView) -> None:
        """What is free on the node now, as `_replace` with a new one."""
        before, old = len(node.whole), (node.cpu_milli, node.memory_bytes, node.whole)
        node.renew(view)
        if not _covers(old, node):
            self._freed(view.name)
        self._count(node, before)

    def _freed(self, node: str) -> None:
        self._hopeless.clear()
        self.version += 1
        self.freed.append(node)

    def _count(self, node: _NodeSpace, before: int) -> None:
        """The node had `before` free devices."""
        after = len(node.whole)
        if after != before:
            self._index.drop(node, before)
            self._index.add(node)
            self._free_devices += after - before


class NodeIndex:
    """Nodes by the number of their free devices, in their order: the fullest with enough of them is found without a look at
    the others."""

    def __init__(self, nodes: Iterable[_NodeSpace]) -> None:
        self._without: list[_NodeSpace] = []
        """Nodes without devices, which never change their place."""
        self._by_free: list[list[_NodeSpace]] = []
        for position, node in enumerate(nodes):
            node.position = position
            self.add(node)

    def from_fullest(self, gpus: int) -> Iterator[_NodeSpace]:
        """The nodes with at least so many free devices. A configuration without GPUs sees nodes without devices first: only
        such configurations fit there. Then those with the fewest free devices; ties: the order of nodes."""
        if not gpus:
            yield from self._without
        for nodes in self._by_free[gpus:]:
            yield from nodes

    def add(self, node: _NodeSpace) -> None:
        insort(self._line(node, len(node.whole)), node, key=_position)

    def drop(self, node: _NodeSpace, free: int) -> None:
        """`node` had `free` free devices so far."""
        line = self._line(node, free)
        del line[bisect_left(line, node.position, key=_position)]

    def _line(self, node: _NodeSpace, free: int) -> list[_NodeSpace]:
        if not node.view.devices:
            return self._without
        while len(self._by_free) <= free:
            self._by_free.append([])
        return self._by_free[free]


@dataclass(slots=True)
class _NodeSpace:
    """One node: free host resources, healthy devices that are free as a whole, free thousandths of the other devices.

    `alike`: type and usable memory of its devices, if they don't differ. `position`: in the order of nodes. `shares`: of whole
    devices, by UUID and memory; each is made once. `exclusive`: all devices are healthy, and no two jobs share one.
    """

    view: NodeView
    cpu_milli: int
    memory_bytes: int
    whole: list[DeviceView]
    partly: dict[str, int]
    alike: tuple[str, int] | None
    position: int = 0
    shares: dict[tuple[str, int], DeviceShare] = field(default_factory=dict)
    exclusive: bool = False

    @classmethod
    def now(cls, node: NodeView) -> _NodeSpace:
        space = cls(node, 0, 0, [], {}, _alike(node))
        space.renew(node)
        return space

    def renew(self, node: NodeView) -> None:
        """Read what is free from a later view of the same node."""
        self.view, self.cpu_milli, self.memory_bytes = node, node.free_cpu_milli, node.free_memory_bytes
        free = [d for d in node.devices if d.free_milli > 0 and d.healthy]
        self.whole = [d for d in free if d.free_milli >= WHOLE_DEVICE_MILLI]
        self.partly = {}
        if len(self.whole) < len(free):
            self.partly = {d.uuid: d.free_milli for d in free if d.free_milli < WHOLE_DEVICE_MILLI}
        self.whole.sort(key=_index)
        self.exclusive = {(d.healthy, d.sharing) for d in node.devices} == {(True, "exclusive")}

    @classmethod
    def empty(cls, node: NodeView) -> _NodeSpace:
        free = {d.uuid: WHOLE_DEVICE_MILLI for d in node.devices}
        return cls(node, node.cpu_milli, node.memory_bytes, *_split(node, free), _alike(node))

    def copy(self) -> _NodeSpace:
        return _NodeSpace(
            self.view,
            self.cpu_milli,
            self.memory_bytes,
            list(self.whole),
            dict(self.partly),
            self.alike,
            self.position,
            self.shares,
            self.exclusive,
        )

    def covers(self, other: _NodeSpace) -> bool:
        """Whether all that is free in `other` is free here."""
        return _covers((self.cpu_milli, self.memory_bytes, self.whole), other)

    def task(self, configuration: Configuration, device: str | None) -> TaskPlacement:
        """A task on this node, where it fits, on the first suitable devices."""
        memory = configuration.device_memory_bytes
        devices = self.usable(configuration, device)[: configuration.gpus]
        shares = tuple([self.shares.get((d.uuid, memory)) or self._share(d, memory) for d in devices])
        return TaskPlacement(self.view.name, shares, configuration.cpu_milli, configuration.memory_bytes)

    def _share(self, device: DeviceView, memory_bytes: int) -> DeviceShare:
        share = DeviceShare(device.uuid, device.gpu_type, WHOLE_DEVICE_MILLI, memory_bytes)
        self.shares[device.uuid, memory_bytes] = share
        return share

    def usable(self, configuration: Configuration, device: str | None) -> list[DeviceView]:
        if device is None and self.alike is not None:
            return self.whole if configuration.fits_on(*self.alike) else []
        return [d for d in self.whole if device in (None, d.uuid) and device_suits(d, configuration)]

    def fits(self, configuration: Configuration, device: str | None) -> bool:
        gpus = configuration.gpus
        if (
            len(self.whole) < gpus
            or self.cpu_milli < configuration.cpu_milli
            or self.memory_bytes < configuration.memory_bytes
        ):
            return False
        if not gpus:
            return True
        if device is None and self.alike is not None:
            return configuration.fits_on(*self.alike)
        return len(self.usable(configuration, device)) >= gpus

    def fits_without(self, configuration: Configuration, tasks: Sequence[TaskPlacement]) -> bool:
        """Whether `configuration` fits after `tasks` have ended."""
        cpu_milli, memory_bytes, devices = self.cpu_milli, self.memory_bytes, len(self.whole)
        for task in tasks:
            cpu_milli += task.cpu_milli
            memory_bytes += task.memory_bytes
            devices += len(task.shares)
        gpus = configuration.gpus
        if (
            devices < gpus
            or cpu_milli < configuration.cpu_milli
            or memory_bytes < configuration.memory_bytes
            or (gpus and self.alike is not None and not configuration.fits_on(*self.alike))
        ):
            return False
        if not gpus or (self.alike is not None and len(self.whole) >= gpus):
            return True
        if self.alike is not None and self.exclusive and not self.partly:
            return True  # only the number of devices counts
        free = dict(self.partly) | {d.uuid: WHOLE_DEVICE_MILLI for d in self.whole}
        for task in tasks:
            for device, milli in _shares(task):
                free[device] = free.get(device, 0) + milli
        whole = [d for d in self.view.devices if d.healthy and free.get(d.uuid, 0) >= WHOLE_DEVICE_MILLI]
        if self.alike is None:
            whole = [d for d in whole if device_suits(d, configuration)]
        return len(whole) >= gpus

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
        if not task.shares:
            return
        devices = {share.device for share in task.shares if share.milli == WHOLE_DEVICE_MILLI}
        named = [d for d in self.view.devices if d.uuid in devices]
        if self.partly or len(named) < len(task.shares):
            for device, milli in _shares(task):
                self._set(device, self._free_milli(device) + sign * milli)
            return
        self.whole = [d for d in self.whole if d.uuid not in devices]
        if sign > 0:
            self.whole += [d for d in named if d.healthy]
            self.whole.sort(key=_index)

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


def _alike(node: NodeView) -> tuple[str, int] | None:
    if not node.devices:
        return None
    first = node.devices[0]
    kind = (first.gpu_type, first.usable_memory_bytes)
    return kind if all(d.gpu_type == kind[0] and d.usable_memory_bytes == kind[1] for d in node.devices) else None


def _covers(free: tuple[int, int, list[DeviceView]], other: _NodeSpace) -> bool:
    """Whether all that is free in `other` is among these CPUs, memory and devices."""
    cpu_milli, memory_bytes, whole = free
    return (
        cpu_milli >= other.cpu_milli
        and memory_bytes >= other.memory_bytes
        and len(whole) >= len(other.whole)
        and {d.uuid for d in whole}.issuperset([d.uuid for d in other.whole])
    )


def _split(node: NodeView, free_milli: Mapping[str, int]) -> tuple[list[DeviceView], dict[str, int]]:
    healthy = [d for d in node.devices if d.healthy]
    whole = [d for d in healthy if free_milli[d.uuid] >= WHOLE_DEVICE_MILLI]
    partly = {d.uuid: free_milli[d.uuid] for d in healthy if 0 < free_milli[d.uuid] < WHOLE_DEVICE_MILLI}
    return sorted(whole, key=_index), partly


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
