"""What the nodes of the pools offer this scheduler: devices that pods of others or faults take away, nodes that take no jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from emulator_runtime.domain.gpu import Device
from emulator_runtime.node.layout import GPU_RESOURCE
from emulator_runtime.profiles.table import ProfileTable
from operators.fitting.offers import NodeOffer, offers_of
from operators.fitting.workload import cluster_of
from operators.objects.node import Node
from operators.objects.pool import Pool
from operators.pools.emulated_nodes import emulated_nodes
from operators.scheduling.see.cluster_objects import ClusterObjects
from scheduler_sims.clusters.open import NodeState
from scheduler_sims.inputs.cluster_file import ClusterSpec

_NONE_USED: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class ClusterSnapshot:
    """The nodes at one moment, and what all jobs share. `epoch_ns`: the wall clock at emulated time 0."""

    states: Sequence[NodeState]
    offers: Sequence[NodeOffer]
    profiles: ProfileTable
    epoch_ns: int
    devices: Mapping[str, Device] = field(init=False)
    cluster: ClusterSpec = field(init=False)

    def __post_init__(self) -> None:
        nodes = tuple(state.spec for state in self.states)
        object.__setattr__(self, "cluster", ClusterSpec(nodes))
        object.__setattr__(self, "devices", {device.uuid: device for node in nodes for device in node.devices})


class Capacity:
    """Keeps `snapshot`, the nodes as of the last call of `refresh`."""

    def __init__(self, objects: ClusterObjects, profiles: ProfileTable, epoch_ns: int) -> None:
        self._objects = objects
        self.snapshot = ClusterSnapshot((), (), profiles, epoch_ns)
        self._others = Counter[str]()
        self._stray: set[str] = set()
        self._owners_changed = False

    def new_jobs(self) -> None:
        """This scheduler has new jobs: their pods no longer count as pods of others."""
        self._owners_changed = True

    def note_stray(self, uid: str, *, stray: bool) -> None:
        """`stray`: the job has pods on nodes although the loop counts no allocation for it, such as half a gang.

        GPUs of stray pods count as used by others.
        """
        if stray != (uid in self._stray):
            self._stray ^= {uid}
            self._owners_changed = True

    def refresh(self, own: Container[str]) -> bool:
        """Returns whether `snapshot` was replaced. `own`: the uids of this scheduler's jobs."""
        objects = self._objects
        used = objects.usages.take_dirty() - {""}
        moved = objects.pools.take_dirty() | objects.nodes.take_dirty()
        if not (moved or used or self._owners_changed):
            return False
        self._owners_changed = False
        others = objects.used_by_others(own, self._stray)
        if not moved and others == self._others:
            return False
        self._others = others
        pools, nodes = objects.pools.values(), objects.nodes.values()
        states = node_states(pools, nodes, others)
        if states == self.snapshot.states:
            return False
        self.snapshot = ClusterSnapshot(states, offers_of(pools, nodes), self.snapshot.profiles, self.snapshot.epoch_ns)
        return True


def node_states(
    pools: Sequence[Pool], nodes: Sequence[Node], others: Mapping[str, int] = _NONE_USED
) -> tuple[NodeState, ...]:
    """The states of all nodes of all pools, by name. `others`: GPUs per node that pods of others use.

    The pool says which devices are unhealthy. The kubelet offers fewer devices than the pool has while the node's device
    plugin is away. A pool of 4 GPUs, one of them unhealthy, 2 offered by the kubelet, 1 used by others: 4 - 1 - 2 + 1 = 2
    devices are absent. Where pods share devices, the kubelet offers each several times; a device counts as absent if any part
    of it is missing or used by others.
    """
    known = emulated_nodes(pools, nodes)
    states = []
    for each, spec in zip(known, cluster_of(known).nodes, strict=True):
        node = each.node
        unhealthy = frozenset(entry.device.uuid for entry in each.gpus if not entry.healthy)
        offered = node.allocatable.get(GPU_RESOURCE, 0)
        parts = each.replicas
        missing = max(0, (len(spec.devices) - len(unhealthy)) * parts - offered) + others.get(spec.name, 0)
        absent = -(-missing // parts)
        states.append(NodeState(spec, unhealthy, absent, closed=not node.ready or node.cordoned))
    return tuple(states)
