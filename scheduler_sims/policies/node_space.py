"""What is free on one node, and the index of nodes in which FreeSpace finds the one to place on."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TypeVar

from emulator_runtime.domain.errors import PolicyError
from emulator_runtime.domain.job import Configuration
from scheduler_sims.interface.plan import WHOLE_DEVICE_MILLI, Allocation, DeviceShare, TaskPlacement
from scheduler_sims.interface.view import DeviceView, NodeView

T = TypeVar("T")

_index = attrgetter("index")
"""Of a device on its node."""
_domain = attrgetter("nvlink_domain")
"""Of a device."""
_position = attrgetter("position")
"""Of a node."""


def device_suits(device: DeviceView, configuration: Configuration) -> bool:
    """Whether the device has an allowed type and enough usable memory, free or not."""
    return configuration.fits_on(device.gpu_type, device.usable_memory_bytes)


class NodeIndex:
    """Nodes by the number of their free devices, in their order: the fullest with enough of them is found without a look at
    the others."""

    def __init__(self, nodes: Iterable[NodeSpace]) -> None:
        self._without: list[NodeSpace] = []
        """Nodes without devices, which never change their place."""
        self._by_free: list[list[NodeSpace]] = []
        for position, node in enumerate(nodes):
            node.position = position
            self.add(node)

    def from_fullest(self, gpus: int) -> Iterator[NodeSpace]:
        """The nodes with at least so many free devices. A configuration without GPUs sees nodes without devices first: only
        such configurations fit there. Then those with the fewest free devices; ties: the order of nodes."""
        if not gpus:
            yield from self._without
        for nodes in self._by_free[gpus:]:
            yield from nodes

    def add(self, node: NodeSpace) -> None:
        insort(self._line(node, len(node.whole)), node, key=_position)

    def drop(self, node: NodeSpace, free: int) -> None:
        """`node` had `free` free devices so far."""
        line = self._line(node, free)
        del line[bisect_left(line, node.position, key=_position)]

    def _line(self, node: NodeSpace, free: int) -> list[NodeSpace]:
        if not node.view.devices:
            return self._without
        while len(self._by_free) <= free:
            self._by_free.append([])
        return self._by_free[free]


@dataclass(slots=True)
class NodeSpace:
    """One node: free host resources, healthy devices that are free as a whole, free thousandths of the other devices.

    `alike`: type and usable memory of its devices, if they don't differ. `position`: in the order of nodes. `shares`: of whole
    devices, by UUID and memory; each is made once. `exclusive`: all devices are healthy, and no two jobs share one.
    `several_domains`: NVLink joins only parts of the devices.
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
    several_domains: bool = False

    @classmethod
    def now(cls, node: NodeView) -> NodeSpace:
        space = cls(node, 0, 0, [], {}, _alike(node), several_domains=node.nvlink_domain is None)
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
    def empty(cls, node: NodeView) -> NodeSpace:
        free = {d.uuid: WHOLE_DEVICE_MILLI for d in node.devices}
        return cls(
            node,
            node.cpu_milli,
            node.memory_bytes,
            *_split(node, free),
            _alike(node),
            several_domains=node.nvlink_domain is None,
        )

    def copy(self) -> NodeSpace:
        return NodeSpace(
            self.view,
            self.cpu_milli,
            self.memory_bytes,
            list(self.whole),
            dict(self.partly),
            self.alike,
            self.position,
            self.shares,
            self.exclusive,
            self.several_domains,
        )

    def covers(self, other: NodeSpace) -> bool:
        """Whether all that is free in `other` is free here."""
        return covers((self.cpu_milli, self.memory_bytes, self.whole), other)

    def task(self, configuration: Configuration, device: str | None) -> TaskPlacement:
        """A task on this node, where it fits, on the first suitable devices."""
        memory = configuration.device_memory_bytes
        devices = self.devices(configuration, device)
        shares = tuple([self.shares.get((d.uuid, memory)) or self._share(d, memory) for d in devices])
        return TaskPlacement(self.view.name, shares, configuration.cpu_milli, configuration.memory_bytes)

    @property
    def domain(self) -> str:
        """The NVLink domain that the node is in, or the node if its devices are in several."""
        return self.view.nvlink_domain or self.view.name

    def devices(self, configuration: Configuration, device: str | None) -> list[DeviceView]:
        """The devices that a task gets."""
        usable = self.usable(configuration, device)
        return joined_devices(usable, configuration) if self.several_domains else usable[: configuration.gpus]

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
        if self.several_domains and configuration.parallelism.tensor > 1:
            return configuration.parallelism.usable_gpus(map(_domain, self.usable(configuration, device)), gpus) >= gpus
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
        anywhere = not self.several_domains or configuration.parallelism.tensor == 1
        if not gpus or (self.alike is not None and len(self.whole) >= gpus and anywhere):
            return True
        if self.alike is not None and self.exclusive and not self.partly and anywhere:
            return True  # only the number of devices counts
        free = dict(self.partly) | {d.uuid: WHOLE_DEVICE_MILLI for d in self.whole}
        for task in tasks:
            for device, milli in _shares(task):
                free[device] = free.get(device, 0) + milli
        whole = [d for d in self.view.devices if d.healthy and free.get(d.uuid, 0) >= WHOLE_DEVICE_MILLI]
        if self.alike is None:
            whole = [d for d in whole if device_suits(d, configuration)]
        return (len(whole) if anywhere else configuration.parallelism.usable_gpus(map(_domain, whole), gpus)) >= gpus

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


class FreeByDomain:
    """How many devices are free in each NVLink domain."""

    def __init__(self, nodes: Iterable[NodeSpace]) -> None:
        self._free: Counter[str] = Counter()
        self._of_node: dict[str, Counter[str]] = {}
        for node in nodes:
            self.renew(node)

    def renew(self, node: NodeSpace) -> None:
        """Other devices of the node are free than before."""
        before, now = self._of_node.get(node.view.name, Counter()), Counter(map(_domain, node.whole))
        self._free.subtract(before)
        self._free.update(now)
        self._of_node[node.view.name] = now

    def rank(self, node: NodeSpace, configuration: Configuration, device: str | None) -> tuple[float, int]:
        """How many domains a task on the node would take, and how many devices are free in the smallest; less is better."""
        if not node.several_domains:
            return 1, self._free[node.domain]
        domains = {each.nvlink_domain for each in node.devices(configuration, device)}
        return len(domains), min([self._free[domain] for domain in domains])


def joined_devices(devices: Sequence[DeviceView], configuration: Configuration) -> list[DeviceView]:
    """Those of a node's free devices, all of which suit, that the configuration takes; none if they are too few."""
    gpus = configuration.gpus
    return from_fewest_domains(devices, _domain, gpus, min(configuration.parallelism.tensor, gpus)) if gpus else []


def from_fewest_domains(items: Sequence[T], domain: Callable[[T], str], count: int, per_layer: int) -> list[T]:
    """`count` of the items, which are devices or nodes, of as few NVLink domains as possible; of each a multiple of `per_layer`.

    The largest domains are taken whole, the rest from the smallest that has enough. Empty if there are too few.
    """
    domains: dict[str, list[T]] = {}
    for item in items:
        domains.setdefault(domain(item), []).append(item)
    chosen: list[T] = []
    while domains and (left := count - len(chosen)):
        sizes = {name: len(members) for name, members in domains.items()}
        enough = [name for name, size in sizes.items() if size >= left]
        name = min(enough, key=sizes.__getitem__) if enough else max(sizes, key=sizes.__getitem__)
        members = domains.pop(name)
        most = min(left, len(members))
        chosen += members[: most - most % per_layer]
    return chosen if len(chosen) == count else []


def types_of_mixed(nodes: Iterable[NodeView]) -> tuple[str, ...]:
    """The types of GPU of those of the nodes that have several."""
    of_nodes = (dict.fromkeys(device.gpu_type for device in node.devices) for node in nodes)
    return tuple(dict.fromkeys(gpu_type for types in of_nodes if len(types) > 1 for gpu_type in types))


def _alike(node: NodeView) -> tuple[str, int] | None:
    if not node.devices:
        return None
    first = node.devices[0]
    kind = (first.gpu_type, first.usable_memory_bytes)
    return kind if all(d.gpu_type == kind[0] and d.usable_memory_bytes == kind[1] for d in node.devices) else None


def covers(free: tuple[int, int, list[DeviceView]], other: NodeSpace) -> bool:
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


def per_node(allocation: Allocation) -> list[TaskPlacement]:
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
