"""From the observed pools and nodes to plans: one pure function, called after every change (level-triggered).

It plans nothing that is already so: a cluster at rest costs no requests, and a repeated call gives empty plans.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from emulator_runtime.node.layout import INVENTORY_ANNOTATION
from operators.controllers.actions import CommonAction, Plan, RecordEvent, WriteStatus
from operators.controllers.events import Event
from operators.kube.documents import condition_of
from operators.objects.node import Node
from operators.objects.pool import Pool
from operators.pools.assign import Assignment, Claim, assign
from operators.pools.labels import labels_of
from operators.pools.status import PoolNode, PoolSeen, pool_status

_EVENTS = (
    ("Ready", "True", ""),
    ("Conflicted", "False", "no node is contested"),
    ("UnhealthyApplied", "True", "every device in spec.unhealthy is there"),
)
"""Conditions whose transitions are events: the good status, and its text; empty: always the condition's message."""


@dataclass(frozen=True, slots=True)
class PatchNode:
    """Set these labels and annotations on the Node with this uid, and remove those of emugpu that aren't named."""

    name: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


Action = PatchNode | CommonAction


def reconcile(pools: Sequence[Pool], nodes: Sequence[Node], now: str) -> list[Plan[Action]]:
    """A plan for each node (by name), then one for each pool: its status with the events of its changes. `now`: RFC 3339."""
    assignment = assign(pools, nodes)
    plans: list[Plan[Action]] = []
    members: defaultdict[str, list[PoolNode]] = defaultdict(list)
    for node in sorted(nodes, key=lambda node: node.name):
        claim = assignment.claims.get(node.name)
        if claim is not None:
            members[claim.pool].append(PoolNode(node, claim.inventory))
        patch = _node_patch(node, claim)
        if patch is not None:
            plans.append(Plan((patch,)))
    for pool in sorted((p for p in pools if not p.deleting), key=lambda pool: pool.name):
        actions = tuple(_pool_actions(pool, pool_status(pool, _seen(pool.name, members[pool.name], assignment), now)))
        if actions:
            plans.append(Plan(actions, owner=pool.key))
    return plans


def node_patch(node: Node, labels: Mapping[str, str], annotations: Mapping[str, str]) -> PatchNode | None:
    """The patch that gives the node exactly these labels and annotations of emugpu; None if it has them."""
    wanted = frozenset(_keys(labels, annotations))
    right = labels.items() <= node.labels.items() and annotations.items() <= node.annotations.items()
    return None if right and node.owned == wanted else PatchNode(node.name, node.uid, labels, annotations)


def is_cleaning(node: Node) -> bool:
    """Whether `cleanup` is in progress on this node, by its inventory."""
    try:
        document = json.loads(node.inventory_text or "{}")
    except ValueError:
        return False
    return isinstance(document, dict) and document.get("cleanup") is True


def _seen(pool: str, nodes: Sequence[PoolNode], assignment: Assignment) -> PoolSeen:
    spec = assignment.specs.get(pool)
    marked = () if spec is None else tuple(spec.unhealthy)
    return PoolSeen(nodes, assignment.lost.get(pool, {}), assignment.errors.get(pool), marked)


def _node_patch(node: Node, claim: Claim | None) -> PatchNode | None:
    if claim is None:
        return None if is_cleaning(node) else node_patch(node, {}, {})
    if claim.kept or claim.inventory is None:
        return None
    labels = labels_of(claim.inventory, nvidia=claim.nvidia_labels)
    return node_patch(node, labels, {INVENTORY_ANNOTATION: claim.inventory.to_json()})


def _pool_actions(pool: Pool, status: Mapping[str, object]) -> Iterator[Action]:
    if status == pool.status_json:
        return
    yield WriteStatus(pool.key, status, label="PatchStatus")
    for kind, good, all_well in _EVENTS:
        before, after = condition_of(pool.status_json, kind), condition_of(status, kind)
        status_and_reason = after["status"], after["reason"]
        if (before.get("status"), before.get("reason")) == status_and_reason or after["status"] == "Unknown":
            continue
        if after["status"] == good and all_well and before.get("status") in (None, "Unknown", good):
            continue  # nothing was wrong before
        event_kind = "Normal" if after["status"] == good else "Warning"
        event = Event(event_kind, str(after["reason"]), str(after["message"]) or all_well)
        yield RecordEvent(pool.key, event)


def _keys(labels: Iterable[str], annotations: Iterable[str]) -> Iterator[str]:
    yield from (f"labels/{key}" for key in labels)
    yield from (f"annotations/{key}" for key in annotations)
