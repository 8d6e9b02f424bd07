"""Free capacity of the nodes, as a scratch copy on which policies try placements.

With it no policy counts devices by itself, and all policies place alike: a plan names the devices, and the same view gives
the same devices. Policies ask at each event on clusters of hundreds of nodes, so nodes are indexed by their free devices, and
a policy that keeps its FreeSpace reads only the nodes that changed (`follow`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from operator import attrgetter

from emulator_runtime.domain.errors import PolicyError
from emulator_runtime.domain.job import Configuration
from emulator_runtime.domain.parallelism import whole_multiples
from scheduler_sims.interface.plan import Allocation, TaskPlacement
from scheduler_sims.interface.view import ClusterView, DeviceView, JobView, NodeTable, NodeView
from scheduler_sims.policies.node_space import (
    FreeByDomain,
    NodeIndex,
    NodeSpace,
    covers,
    device_suits,
    from_fewest_domains,
    per_node,
    types_of_mixed,
)

_domain = attrgetter("domain")
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
    several = types_of_mixed(view.nodes.values())
    return any(_gang_fits(view, each) for each in configuration.or_on_one_type(several))


def _gang_fits(view: ClusterView, configuration: Configuration) -> bool:
    kinds: dict[tuple[str, ...], Counter[str]] = {}
    for node in view.nodes.values():
        if _fits_empty(node, configuration):
            suitable = [device for device in node.devices if device_suits(device, configuration)]
            kind = tuple([device.gpu_type for device in suitable[: configuration.gpus]])
            kinds.setdefault(kind, Counter())[node.nvlink_domain or node.name] += 1
    per_layer = configuration.parallelism.nodes_per_layer(configuration.gpus)
    fitting = (whole_multiples(domains.values(), per_layer) for domains in kinds.values())
    return max(fitting, default=0) >= configuration.min_tasks


def _fits_empty(node: NodeView, configuration: Configuration) -> bool:
    return (
        node.cpu_milli >= configuration.cpu_milli
        and node.memory_bytes >= configuration.memory_bytes
        and len(node.devices) >= configuration.gpus
        and _suitable(node.devices, configuration) >= configuration.gpus
    )


def _suitable(devices: Iterable[DeviceView], configuration: Configuration) -> int:
    """How many of a node's devices the configuration can use."""
    domains = [device.nvlink_domain for device in devices if device_suits(device, configuration)]
    return configuration.parallelism.usable_gpus(domains, configuration.gpus)


class FreeSpace:
    """Free capacity of each node, for whole devices.

    Best fit: a job on GPUs goes to the node with the fewest free devices on which it fits, which avoids fragmentation; a job
    on CPUs prefers nodes without devices. Ties: the order of the view's nodes. Devices are taken in order of their index.
    A job of N tasks goes to the N best nodes by the same rule, all with the same types of devices (of one type where the first
    free ones differ from node to node); a job is never spread over more nodes than it asks for (consolidation; placement `yarn`
    of Tiresias' simulator).
    Where NVLink joins a part of a node's devices, or those of several nodes, a job goes to the smallest domain that has room for
    it, else to as few domains as possible, and the devices that share a layer of a language model to one.
    """

    def __init__(self, nodes: Iterable[NodeSpace], source: Mapping[str, NodeView] | None = None) -> None:
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
        self._trial: dict[str, NodeSpace] | None = None
        self._mixed = types_of_mixed(node.view for node in self._nodes.values() if node.alike is None)
        stated = any(node.view.nvlink_domain != node.view.name for node in self._nodes.values())
        self._domains = FreeByDomain(self._nodes.values()) if stated else None
        """None: each node is a domain, which has no say in where jobs go."""

    @classmethod
    def now(cls, view: ClusterView) -> FreeSpace:
        """The capacity that is free now, without that of stopping jobs."""
        return cls(map(NodeSpace.now, view.nodes.values()), view.nodes)

    @classmethod
    def empty(cls, view: ClusterView) -> FreeSpace:
        """The capacity of the empty cluster, without unhealthy devices."""
        return cls(map(NodeSpace.empty, view.nodes.values()))

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
            of_types = ((each, self._several(each)) for each in configuration.or_on_one_type(self._mixed))
            configuration, chosen = next((each for each in of_types if each[1]), (configuration, []))
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
        return all(self._node(task.node).lacks(task) is None for task in per_node(allocation))

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
        tasks = per_node(allocation)
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

    def _best(self, configuration: Configuration, node: str | None, device: str | None) -> NodeSpace | None:
        nodes = self._index.from_fullest(configuration.gpus) if node is None else (self._node(node),)
        fitting = (each for each in nodes if each.fits(configuration, device))
        if self._domains is None or not configuration.gpus:
            return next(fitting, None)
        best, least = None, (inf, 0)
        for each in fitting:
            key = self._domains.rank(each, configuration, device)
            if key < least:
                best, least = each, key
            if least == (1, configuration.gpus):
                break  # the job fills a domain
        return best

    def _several(self, configuration: Configuration) -> list[NodeSpace]:
        """A node for each task, all with the same device types; empty if there are too few such nodes."""
        alike: dict[tuple[str, ...], list[NodeSpace]] = {}
        for space in self._index.from_fullest(configuration.gpus):
            if space.fits(configuration, None):
                kind = tuple([device.gpu_type for device in space.devices(configuration, None)])
                alike.setdefault(kind, []).append(space)
        tasks, per_layer = configuration.min_tasks, configuration.parallelism.nodes_per_layer(configuration.gpus)
        enough = (spaces for spaces in alike.values() if len(spaces) >= tasks)
        if self._domains is None and per_layer == 1:
            return next(enough, [])[:tasks]
        chosen = [from_fewest_domains(spaces, _domain, tasks, per_layer) for spaces in enough]
        return min(filter(None, chosen), key=lambda spaces: len({each.domain for each in spaces}), default=[])

    def _node(self, name: str) -> NodeSpace:
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

    def _replace(self, name: str, node: NodeSpace) -> None:
        """Something may be free in `node` that wasn't: then a configuration that fitted nowhere may fit."""
        old = self._nodes[name]
        if not old.covers(node):
            self._freed(name)
        node.position = old.position
        self._nodes[name] = node
        if self._domains is not None:
            self._domains.renew(node)
        self._index.drop(old, len(old.whole))
        self._index.add(node)
        self._free_devices += len(node.whole) - len(old.whole)

    def _renew(self, node: NodeSpace, view: NodeView) -> None:
        """What is free on the node now, as `_replace` with a new one."""
        before, old = len(node.whole), (node.cpu_milli, node.memory_bytes, node.whole)
        node.renew(view)
        if not covers(old, node):
            self._freed(view.name)
        self._count(node, before)

    def _freed(self, node: str) -> None:
        self._hopeless.clear()
        self.version += 1
        self.freed.append(node)

    def _count(self, node: NodeSpace, before: int) -> None:
        """The node had `before` free devices."""
        if self._domains is not None:
            self._domains.renew(node)
        after = len(node.whole)
        if after != before:
            self._index.drop(node, before)
            self._index.add(node)
            self._free_devices += after - before
