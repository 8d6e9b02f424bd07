"""The nodes of the pools as a scheduler counts them: devices that nobody gets, nodes where nothing may start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from emulator_runtime.domain.gpu import Device
from emulator_runtime.profiles.table import ProfileTable
from operators.fitting.offers import NodeOffer, offers_of
from operators.fitting.workload import cluster_of
from operators.objects.node import Node
from operators.objects.pool import DEFAULT_RESOURCE, Pool
from operators.pools.emulated_nodes import emulated_nodes
from operators.scheduling.see.cluster_objects import ClusterObjects
from scheduler_sims.clusters.open import NodeState
from scheduler_sims.inputs.cluster_file import ClusterSpec

_NOBODY: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class ClusterState:
    """What all jobs share. `epoch_ns`: the wall clock at emulated time 0."""

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
    """What nodes have for this scheduler's jobs, counted again after each change. `cluster_state`: of the last count."""

    def __init__(self, objects: ClusterObjects, profiles: ProfileTable, epoch_ns: int) -> None:
        self._objects = objects
        self.cluster_state = ClusterState((), (), profiles, epoch_ns)
        self._others = Counter[str]()
        self._stray: set[str] = set()
        self._owners_changed = False

    def new_jobs(self) -> None:
        """What their pods have is no more anybody else's."""
        self._owners_changed = True

    def note_stray(self, uid: str, *, stray: bool) -> None:
        """What pods have of a job that holds nothing in the loop's books, such as half a gang, is as good as other people's."""
        if stray != (uid in self._stray):
            self._stray ^= {uid}
            self._owners_changed = True

    def renewed(self, own: Container[str]) -> bool:
        """Whether `cluster_state` is another one now. `own`: this scheduler's jobs by uid."""
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
        if states == self.cluster_state.states:
            return False
        self.cluster_state = ClusterState(
            states, offers_of(pools, nodes), self.cluster_state.profiles, self.cluster_state.epoch_ns
        )
        return True


def node_states(
    pools: Sequence[Pool], nodes: Sequence[Node], others: Mapping[str, int] = _NOBODY
) -> tuple[NodeState, ...]:
    """All nodes of all pools, by name. `others`: GPUs by node that pods have which aren't this scheduler's.

    The pool says which devices are unhealthy. How many there really are is what the kubelet offers: fewer while the node's
    daemon is away.
    """
    known = emulated_nodes(pools, nodes)
    states = []
    for each, spec in zip(known, cluster_of(known).nodes, strict=True):
        node = each.node
        unhealthy = frozenset(entry.device.uuid for entry in each.gpus if not entry.healthy)
        offered = node.allocatable.get(DEFAULT_RESOURCE, 0)
        absent = max(0, len(spec.devices) - len(unhealthy) - offered) + others.get(spec.name, 0)
        states.append(NodeState(spec, unhealthy, absent, closed=not node.ready or node.cordoned))
    return tuple(states)
