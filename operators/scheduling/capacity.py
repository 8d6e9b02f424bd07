"""The nodes of the pools as a scheduler counts them: devices that nobody gets, nodes where nothing may start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from operators.emujob.workload import cluster_spec
from operators.pools.assign import assign
from operators.pools.objects import NodeFacts, PoolFacts
from operators.pools.spec import DEFAULT_RESOURCE
from scheduler_sims.clusters.open import NodeState

_NOBODY: Mapping[str, int] = MappingProxyType({})


def node_states(
    pools: Sequence[PoolFacts], nodes: Sequence[NodeFacts], others: Mapping[str, int] = _NOBODY
) -> tuple[NodeState, ...]:
    """All nodes of all pools, by name. `others`: GPUs by node that pods have which aren't this scheduler's.

    The pool says which devices are unhealthy. How many there really are is what the kubelet offers: fewer while the node's
    daemon is away.
    """
    claims, known = assign(pools, nodes).claims, {node.name: node for node in nodes}
    states = []
    for spec in cluster_spec(pools, nodes).nodes:
        node, inventory = known[spec.name], claims[spec.name].inventory
        entries = [e for r in inventory.resources if r.name == DEFAULT_RESOURCE for e in r.devices] if inventory else []
        unhealthy = frozenset(entry.device.uuid for entry in entries if not entry.healthy)
        offered = node.allocatable.get(DEFAULT_RESOURCE, 0)
        absent = max(0, len(spec.devices) - len(unhealthy) - offered) + others.get(spec.name, 0)
        states.append(NodeState(spec, unhealthy, absent, closed=not node.ready or node.cordoned))
    return tuple(states)
