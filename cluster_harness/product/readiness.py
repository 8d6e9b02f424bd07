"""What nodes offer, as the kubelets report it: how we know that a cluster is ready, and its status.

Emulated GPUs; and on nodes without any, the places that jobs on CPUs alone take (HOST_RESOURCE).
"""

from __future__ import annotations

from collections.abc import Sequence

from cluster_harness.nodes.kubectl import Node
from cluster_harness.product.chart import POOL_LABEL
from cluster_harness.request.spec import ClusterSpec
from emulator_runtime.node.layout import HOST_RESOURCE

PREFIX = "emugpu.dev/"
_NO_DEVICES = (
    HOST_RESOURCE,
    f"{PREFIX}cpu",
    f"{PREFIX}memory",
)  # places; and names reserved for emulated CPUs and memory


def gpus_of(node: Node) -> dict[str, int]:
    """Allocatable devices by resource name."""
    return {name: int(count) for name, count in sorted(node.allocatable.items()) if is_device(name)}


def is_device(resource: str) -> bool:
    """Whether this is one of our resources that stand for GPUs."""
    return resource.startswith(PREFIX) and resource not in _NO_DEVICES


def missing_gpus(spec: ClusterSpec, nodes: Sequence[Node]) -> str | None:
    """Which nodes don't offer what their pool wants yet; None: all do."""
    wanted = {pool.name: pool.gpus for pool in spec.offering_pools}
    found = {
        node.name: (sum(gpus_of(node).values()), wanted[node.labels[POOL_LABEL]])
        for node in nodes
        if node.labels.get(POOL_LABEL) in wanted
    }
    short = [f"{name} has {has} of {wants} GPUs" for name, (has, wants) in found.items() if has < wants]
    placeless = [node.name for node in nodes if found.get(node.name, (0, 1))[1] == 0 and not _places(node)]
    short += [f"{name} doesn't offer {HOST_RESOURCE}" for name in placeless]
    wanted_nodes = sum(pool.nodes for pool in spec.offering_pools)
    if len(found) < wanted_nodes:
        short.insert(0, f"{len(found)} of {wanted_nodes} nodes have a pool's label")
    if len(short) > 3:
        return f"{', '.join(short[:3])} and {len(short) - 3} more"
    return ", ".join(short) or None


def _places(node: Node) -> int:
    return int(node.allocatable.get(HOST_RESOURCE, 0))
