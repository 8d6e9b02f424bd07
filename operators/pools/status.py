"""The status of a pool: what its nodes really offer beside what they should, in numbers and in one sentence.

Conditions follow the Kubernetes API conventions: lastTransitionTime changes with `status` only, and each says for which
generation it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emulator_runtime.domain.errors import InputError, UnknownNameError
from emulator_runtime.node.inventory import Inventory
from operators.pools.objects import NodeFacts, PoolFacts

_SHOWN = 3
"""So many nodes are named in a message; the others are counted."""


@dataclass(frozen=True, slots=True)
class PoolNode:
    """One node of a pool: what it should have (None: unreadable) and what the kubelet offers."""

    node: NodeFacts
    inventory: Inventory | None

    @property
    def devices(self) -> int:
        return 0 if self.inventory is None else sum(1 for _ in self.inventory.entries())

    @property
    def unhealthy(self) -> int:
        return 0 if self.inventory is None else sum(not entry.healthy for entry in self.inventory.entries())

    @property
    def expected(self) -> int:
        """What pods can ask for once the node's daemons have announced the healthy devices."""
        resources = () if self.inventory is None else self.inventory.resources
        return sum(r.replicas for r in resources for entry in r.devices if entry.healthy)

    @property
    def allocatable(self) -> int:
        """What pods can ask for now: the kubelet's word, of a node that is ready."""
        if self.inventory is None or not self.node.ready:
            return 0
        return sum(self.node.allocatable.get(resource.name, 0) for resource in self.inventory.resources)


def pool_status(
    pool: PoolFacts, nodes: Sequence[PoolNode], lost: Mapping[str, str], error: InputError | None, now: str
) -> dict[str, Any]:
    """The whole status. `lost`: nodes that an older pool has, with that pool's name. `now`: RFC 3339, for what changes."""
    conditions = [
        _condition(pool, "Ready", *_ready(nodes, lost, error), now=now),
        _condition(pool, "Conflicted", *_conflicted(lost), now=now),
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


def condition_of(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The condition of this type; empty where there is none."""
    conditions = status.get("conditions")
    found = (
        [c for c in conditions if isinstance(c, dict) and c.get("type") == kind] if isinstance(conditions, list) else []
    )
    return found[0] if found else {}


def _condition(pool: PoolFacts, kind: str, holds: bool, reason: str, message: str, *, now: str) -> dict[str, Any]:  # noqa: FBT001
    before = condition_of(pool.status, kind)
    status = "True" if holds else "False"
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    return {
        "type": kind,
        "status": status,
        "observedGeneration": pool.generation,
        "lastTransitionTime": since or now,
        "reason": reason,
        "message": message[:1024],
    }


def _ready(nodes: Sequence[PoolNode], lost: Mapping[str, str], error: InputError | None) -> tuple[bool, str, str]:
    if error is not None:
        kept = f"; {_counted(n.node.name for n in nodes)} stay as they were" if nodes else ""
        unknown_type = isinstance(error, UnknownNameError) and error.place.endswith("].type")
        return False, "UnknownGpuType" if unknown_type else "InvalidSpec", f"{error}{kept}"
    if not nodes:
        problem = "every node that it matches belongs to an older pool" if lost else "no node matches spec.nodeSelector"
        return False, "NoNodes", f"{problem}; see kubectl get nodes --show-labels"
    waiting = [n for n in nodes if n.allocatable < n.expected or not n.node.ready or n.inventory is None]
    if waiting:
        return False, "WaitingForNodes", _counted((_shortfall(node) for node in waiting), "; ")
    total, expected = (sum(getattr(n, name) for n in nodes) for name in ("allocatable", "expected"))
    return True, "NodesReady", f"{len(nodes)} nodes offer {total} of {expected}"


def _shortfall(node: PoolNode) -> str:
    if node.inventory is None:
        return f"{node.node.name} has an annotation that can't be read"
    if not node.node.ready:
        return f"{node.node.name} is not ready"
    return f"{node.node.name} offers {node.allocatable} of {node.expected}; its emugpu-node pod may be starting"


def _conflicted(lost: Mapping[str, str]) -> tuple[bool, str, str]:
    if not lost:
        return False, "NoConflict", ""
    names = _counted(f"{node} ({winner})" for node, winner in sorted(lost.items()))
    return True, "NodesTaken", f"older pools have these nodes: {names}; make the selectors differ"


def _counted(items: Iterable[str], separator: str = ", ") -> str:
    """The first few, and how many more."""
    every = list(items)
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return separator.join(every[:_SHOWN]) + more
