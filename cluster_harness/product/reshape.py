"""From pools to pools with other names, without a moment in which a node belongs to none.

A node whose label names no pool has no devices, and what pods hold then is lost to them, although the same node, type and
index means the same device. So both stand side by side until the controller has led the nodes over, in one write for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cluster_harness.nodes.kubectl import Node
from cluster_harness.request.spec import ClusterSpec
from operators.objects.node import POOL_LABEL as CONTROLLERS_LABEL


def renames(there: ClusterSpec, wanted: ClusterSpec) -> bool:
    """Whether there are other names of pools of emugpu; under equal names a pool changes where it stands."""
    before, after = ({pool.name for pool in spec.offering_pools} for spec in (there, wanted))
    return before != after


def leaving(there: ClusterSpec, wanted: ClusterSpec) -> list[str]:
    """Pools of emugpu that the wish doesn't name any more."""
    names = {pool.name for pool in wanted.pools}
    return [pool.name for pool in there.offering_pools if pool.name not in names]


def side_by_side(there: ClusterSpec, wanted: ClusterSpec) -> ClusterSpec:
    """The wish, and after its pools those that leave."""
    names = leaving(there, wanted)
    return ClusterSpec(wanted.name, (*wanted.pools, *(pool for pool in there.offering_pools if pool.name in names)))


def unseen(pools: Iterable[Mapping[str, Any]]) -> str | None:
    """Which of these EmuGPUPools the controller hasn't looked at as they are now; None: it has at all."""
    names = [
        pool["metadata"]["name"]
        for pool in pools
        if pool.get("status", {}).get("observedGeneration") != pool["metadata"]["generation"]
    ]
    return f"the controller hasn't seen {', '.join(names)}" if names else None


def behind(nodes: Sequence[Node], names: Sequence[str]) -> str | None:
    """Which nodes still have their devices from one of these pools; None: none."""
    found = [f"{node.name} ({pool})" for node in nodes if (pool := node.labels.get(CONTROLLERS_LABEL)) in names]
    return f"{', '.join(found)} still have devices of pools that go" if found else None
