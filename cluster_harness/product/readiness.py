"""Whether nodes offer what their pools describe, according to their kubelets.

A node offers emulated GPUs, or host slots (HOST_RESOURCE) if its pool has no GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence

from cluster_harness.nodes.kubectl import Node
from cluster_harness.product.chart import POOL_LABEL
from cluster_harness.request.spec import ClusterSpec
from emulator_runtime.node.layout import HOST_RESOURCE

PREFIX = "emugpu.dev/"
_OTHER_RESOURCES = (
    HOST_RESOURCE,
    f"{PREFIX}cpu",
    f"{PREFIX}memory",
)  # host slots, and names reserved for emulated CPUs and memory


def gpus_of(node: Node) -> dict[str, int]:
    """Allocatable devices by resource name."""
    return {name: count for name, count in sorted(node.allocatable.items()) if is_device(name)}


def is_device(resource: str) -> bool:
    """Whether this extended resource counts emulated GPUs."""
    return resource.startswith(PREFIX) and resource not in _OTHER_RESOURCES


def missing_gpus(spec: ClusterSpec, nodes: Sequence[Node]) -> str | None:
    """A sentence that names the nodes that don't offer what their pool describes; None if all do."""
    wanted = {pool.name: pool.gpus for pool in spec.offering_pools}
    offers = {
        node.name: (sum(gpus_of(node).values()), wanted[node.labels[POOL_LABEL]])
        for node in nodes
        if node.labels.get(POOL_LABEL) in wanted
    }
    short = [f"{name} has {has} of {wants} GPUs" for name, (has, wants) in offers.items() if has < wants]
    slotless = [node.name for node in nodes if offers.get(node.name, (0, 1))[1] == 0 and not _host_slots(node)]
    short += [f"{name} doesn't offer {HOST_RESOURCE}" for name in slotless]
    wanted_nodes = sum(pool.nodes for pool in spec.offering_pools)
    if len(offers) < wanted_nodes:
        short.insert(0, f"{len(offers)} of {wanted_nodes} nodes have a pool's label")
    if len(short) > 3:
        return f"{', '.join(short[:3])} and {len(short) - 3} more"
    return ", ".join(short) or None


def _host_slots(node: Node) -> int:
    return node.allocatable.get(HOST_RESOURCE, 0)
