"""The status of a pool: offered beside expected devices of its nodes, in numbers and in one sentence."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emulator_runtime.domain.errors import InputError, UnknownNameError
from emulator_runtime.node.inventory import Inventory
from emulator_runtime.node.layout import HOST_RESOURCE
from operators.kube.documents import new_condition
from operators.objects.node import Node
from operators.objects.pool import Pool

Verdict = tuple[str, str, str]
"""A condition's status, reason and message."""

_SHOWN = 3
"""Maximum number of nodes that a message names; the others are counted."""


@dataclass(frozen=True, slots=True)
class PoolNode:
    """One node of a pool: its inventory (None: unreadable) and what the kubelet offers."""

    node: Node
    inventory: Inventory | None

    @property
    def devices(self) -> int:
        return 0 if self.inventory is None else sum(1 for _ in self.inventory.entries())

    @property
    def unhealthy(self) -> int:
        return 0 if self.inventory is None else sum(not entry.healthy for entry in self.inventory.entries())

    @property
    def expected(self) -> Mapping[str, int]:
        """Resources that pods can request once the node's daemons have announced the healthy devices."""
        resources = () if self.inventory is None else self.inventory.resources
        return {r.name: r.replicas * sum(entry.healthy for entry in r.devices) for r in resources}

    @property
    def offered(self) -> Mapping[str, int]:
        """Resources that pods can request now, as the kubelet of a ready node reports them."""
        return {name: self.node.allocatable.get(name, 0) if self.node.ready else 0 for name in self.expected}

    @property
    def lacks_places(self) -> bool:
        """Whether a node without GPUs, which offers host slots only, offers none yet."""
        return not self.devices and not self.node.allocatable.get(HOST_RESOURCE, 0)

    @property
    def settled(self) -> bool:
        """Whether the kubelet offers exactly the expected devices: more are the figures from before an edit."""
        known = self.node.ready and self.inventory is not None
        return known and self.offered == self.expected and not self.lacks_places

    @property
    def allocatable(self) -> int:
        """All resources together."""
        return sum(self.offered.values())

    @property
    def indexes(self) -> list[int]:
        """Of the devices, and of GPUs that are cut into instances."""
        devices = [] if self.inventory is None else [entry.device for entry in self.inventory.entries()]
        return sorted({index for device in devices for index in (device.index, device.gpu_index)})


@dataclass(frozen=True, slots=True)
class PoolSeen:
    """What a pool comes to. `lost`: nodes that an older pool has, with that pool's name; `error`: why its specification
    can't be read; `marked`: the devices that spec.unhealthy names, as (node, index).
    """

    nodes: Sequence[PoolNode]
    lost: Mapping[str, str]
    error: InputError | None = None
    marked: Collection[tuple[str, int]] = ()


def pool_status(pool: Pool, seen: PoolSeen, now: str) -> dict[str, Any]:
    """The whole status. `now`: RFC 3339, for what changes."""
    nodes = seen.nodes
    conditions = [
        new_condition(pool.status_json, "Ready", _ready(seen), pool.generation, now),
        new_condition(pool.status_json, "Conflicted", _conflicted(seen.lost), pool.generation, now),
        new_condition(pool.status_json, "UnhealthyApplied", _unhealthy_applied(seen), pool.generation, now),
    ]
    return {
        "observedGeneration": pool.generation,
        "nodes": len(nodes),
        "devices": sum(node.devices for node in nodes),
        "allocatable": sum(node.allocatable for node in nodes),
        "unhealthy": sum(node.unhealthy for node in nodes),
        "conditions": conditions,
        "nodeStatuses": [{"name": n.node.name, "devices": n.devices, "allocatable": n.allocatable} for n in nodes],
    }


def _ready(seen: PoolSeen) -> Verdict:
    nodes = seen.nodes
    if seen.error is not None:
        kept = f"; {_counted(n.node.name for n in nodes)} stay as they were" if nodes else ""
        unknown_type = isinstance(seen.error, UnknownNameError) and seen.error.place.endswith("].type")
        return "False", "UnknownGpuType" if unknown_type else "InvalidSpec", f"{seen.error}{kept}"
    if not nodes:
        taken = "every node that it matches belongs to an older pool"
        problem = taken if seen.lost else "no node matches spec.nodeSelector"
        return "False", "NoNodes", f"{problem}; see kubectl get nodes --show-labels"
    waiting = [node for node in nodes if not node.settled]
    if waiting:
        return "False", "WaitingForNodes", _counted((_difference(node) for node in waiting), "; ")
    total = sum(node.allocatable for node in nodes)
    what = f"all {total}" if any(node.devices for node in nodes) else "places without GPUs"
    return "True", "NodesReady", f"{len(nodes)} nodes offer {what}"


def _difference(node: PoolNode) -> str:
    if node.inventory is None:
        return f"{node.node.name} has an annotation that can't be read"
    if not node.node.ready:
        return f"{node.node.name} is not ready"
    starting = "its emugpu-node pod may be starting, or its kubelet hears of the change soon"
    if node.lacks_places:
        return f"{node.node.name} doesn't offer {HOST_RESOURCE} yet; {starting}"
    name, expected = next((name, count) for name, count in node.expected.items() if node.offered[name] != count)
    offered, which = node.offered[name], f" {name}" if len(node.expected) > 1 else ""
    if offered > expected:
        return f"{node.node.name} still offers {offered}{which}, more than {expected}; its kubelet hears of the change soon"
    soon = "its kubelet hears of the change soon" if offered else starting
    return f"{node.node.name} offers {offered} of {expected}{which}; {soon}"


def _conflicted(lost: Mapping[str, str]) -> Verdict:
    if not lost:
        return "False", "NoConflict", ""
    names = _counted(f"{node} ({winner})" for node, winner in sorted(lost.items()))
    return "True", "NodesTaken", f"older pools have these nodes: {names}; make the selectors differ"


def _unhealthy_applied(seen: PoolSeen) -> Verdict:
    if seen.error is not None:
        return "Unknown", "InvalidSpec", "the specification can't be read; condition Ready says why"
    nodes = {node.node.name: node for node in seen.nodes}
    missing = [(name, index) for name, index in seen.marked if name not in nodes or index not in nodes[name].indexes]
    if not missing:
        return "True", "AllFound" if seen.marked else "NoneMarked", ""
    problems = _counted((_not_there(name, index, seen, nodes.get(name)) for name, index in missing), "; ")
    return "False", "NoSuchDevice", f"spec.unhealthy: {problems}; the other entries hold"


def _not_there(name: str, index: int, seen: PoolSeen, node: PoolNode | None) -> str:
    if node is not None and node.inventory is None:
        return f"node {name} (index {index}) has an annotation that can't be read"
    if node is not None:
        indexes = node.indexes
        gapless = indexes == list(range(len(indexes)))
        others = f", only {f'0 to {indexes[-1]}' if gapless else _counted(map(str, indexes))}" if indexes else ""
        return f"node {name} has no device with index {index}{others}"
    if name in seen.lost:
        return f"node {name} (index {index}) belongs to the older pool {seen.lost[name]}"
    known = _counted(n.node.name for n in seen.nodes)
    return f"node {name} (index {index}) is not one of this pool's" + (
        f", which are {known}" if known else ": it has none"
    )


def _counted(items: Iterable[str], separator: str = ", ") -> str:
    """The first few names, and how many more there are."""
    every = list(items)
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return separator.join(every[:_SHOWN]) + more
