"""The emulated GPUs that nodes offer, as the kubelets report them: how we know that a cluster is ready, and its status."""

from __future__ import annotations

from collections.abc import Sequence

from cluster_harness.chart import POOL_LABEL
from cluster_harness.kubectl import Node
from cluster_harness.spec import ClusterSpec

PREFIX = "emugpu.dev/"
_CPU_SUFFIXES = ("cpu", "memory")  # reserved for emulated CPUs and memory: not devices


def gpus_of(node: Node) -> dict[str, int]:
    """Allocatable devices by resource name."""
    return {
        name: int(count)
        for name, count in sorted(node.allocatable.items())
        if name.startswith(PREFIX) and name.removeprefix(PREFIX) not in _CPU_SUFFIXES
    }


def missing_gpus(spec: ClusterSpec, nodes: Sequence[Node]) -> str | None:
    """Which nodes don't offer what their pool wants yet; None: all do."""
    wanted = {pool.name: pool.gpus for pool in spec.gpu_pools}
    found = {
        node.name: (sum(gpus_of(node).values()), wanted[node.labels[POOL_LABEL]])
        for node in nodes
        if node.labels.get(POOL_LABEL) in wanted
    }
    short = [f"{name} has {has} of {wants} GPUs" for name, (has, wants) in found.items() if has < wants]
    wanted_nodes = sum(pool.nodes for pool in spec.gpu_pools)
    if len(found) < wanted_nodes:
        short.insert(0, f"{len(found)} of {wanted_nodes} nodes have a pool's label")
    if len(short) > 3:
        return f"{', '.join(short[:3])} and {len(short) - 3} more"
    return ", ".join(short) or None
