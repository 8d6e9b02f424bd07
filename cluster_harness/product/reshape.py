"""Moves nodes to pools with other names without removing the devices that pods use.

A node whose label names no pool has no devices, so its pods would lose theirs, although the same node, type and index means
the same device. Therefore old and new pools exist side by side until the controller has moved the nodes, each in one write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cluster_harness.nodes.kubectl import Node
from cluster_harness.request.spec import ClusterSpec
from operators.objects.node import POOL_LABEL as CONTROLLERS_LABEL


def renames(current: ClusterSpec, wanted: ClusterSpec) -> bool:
    """Whether the names of EmuGPUPools differ; a pool that keeps its name is changed in place."""
    before, after = ({pool.name for pool in spec.offering_pools} for spec in (current, wanted))
    return before != after


def removed_pools(current: ClusterSpec, wanted: ClusterSpec) -> list[str]:
    """Names of EmuGPUPools that the wanted specification doesn't have."""
    names = {pool.name for pool in wanted.pools}
    return [pool.name for pool in current.offering_pools if pool.name not in names]


def side_by_side(current: ClusterSpec, wanted: ClusterSpec) -> ClusterSpec:
    """The wanted pools, followed by those that will be removed."""
    names = removed_pools(current, wanted)
    return ClusterSpec(wanted.name, (*wanted.pools, *(pool for pool in current.offering_pools if pool.name in names)))


def unobserved(pools: Iterable[Mapping[str, Any]]) -> str | None:
    """A sentence that names the EmuGPUPools whose newest generation the controller hasn't observed; None if there are none."""
    names = [
        pool["metadata"]["name"]
        for pool in pools
        if pool.get("status", {}).get("observedGeneration") != pool["metadata"]["generation"]
    ]
    return f"the controller hasn't observed {', '.join(names)}" if names else None


def not_moved(nodes: Sequence[Node], names: Sequence[str]) -> str | None:
    """A sentence that names the nodes that still have devices of these pools; None if there are none."""
    waiting = [f"{node.name} ({pool})" for node in nodes if (pool := node.labels.get(CONTROLLERS_LABEL)) in names]
    return f"{', '.join(waiting)} still have devices of pools that are removed" if waiting else None
