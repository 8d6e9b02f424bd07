"""The shape of a cluster's links: NVLink domains, nodes, racks, and the network between them.

gpus_per_node: 8          # ranks are placed node by node in their order; without it, where they were recorded
nvlink_domain: 72         # GPUs that NVLink joins; may span nodes; 1: none are joined (default: those of a node)
nodes_per_rack: 16        # nodes below one switch (default: all)
network_gbps: 400         # of a node, one way (default: 100)
network_cards: 8          # of a node, each with its part of network_gbps, for its part of the GPUs (default: 1)
oversubscription: 2       # what the nodes of a rack can send, divided by what the rack can (default: 1)
network_latency_us: 1     # of a message between nodes, in addition to what NCCL's own constants have (default: 0)
rack_latency_us: 2        # in addition to that, between racks (default: 0)
algorithms: [ring, tree]  # that collectives may use (default: ring, tree, hierarchical)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from emulator_runtime.domain.errors import InputError, UnknownNameError
from emulator_runtime.domain.json_document import Field
from emulator_runtime.prediction.links import NETWORK_GBPS

RING, TREE, HIERARCHICAL = "ring", "tree", "hierarchical"
ALGORITHMS = (RING, TREE, HIERARCHICAL)
_NUMBERS = ("network_gbps", "oversubscription", "network_latency_us", "rack_latency_us")
_COUNTS = ("gpus_per_node", "nodes", "nvlink_domain", "nodes_per_rack", "network_cards")
_LEAST = {"oversubscription": 1.0, "network_latency_us": 0.0, "rack_latency_us": 0.0}
_MOST_GPUS = 1_000_000


@dataclass(frozen=True, slots=True)
class Topology:
    """The module has what the fields mean. `gpus_per_node`, `nodes`: None is where the ranks were recorded; with `nodes` alone
    the ranks are divided equally."""

    gpus_per_node: int | None = None
    nodes: int | None = None
    nvlink_domain: int | None = None
    nodes_per_rack: int | None = None
    network_gbps: float = NETWORK_GBPS
    network_cards: int = 1
    oversubscription: float = 1.0
    network_latency_us: float = 0.0
    rack_latency_us: float = 0.0
    algorithms: tuple[str, ...] = ALGORITHMS

    @property
    def network_bytes_per_s(self) -> float:
        """Of a node."""
        return self.network_gbps * 1e9 / 8

    @property
    def rack_bytes_per_s(self) -> float:
        """What a rack can send to others; infinite if there is one rack."""
        if self.nodes_per_rack is None:
            return float("inf")
        return self.nodes_per_rack * self.network_bytes_per_s / self.oversubscription

    def placed(self, ranks: int) -> Topology:
        """With `gpus_per_node`, if ranks aren't where they were recorded. Raises InputError if they have no room."""
        if self.nodes is None:
            return self
        per_node = self.gpus_per_node or -(-ranks // self.nodes)
        if per_node * self.nodes < ranks:
            room = f"{self.nodes} node{'s' * (self.nodes > 1)} of {per_node} GPUs"
            raise InputError("--nodes", f"{room} have no room for the {ranks} ranks of this trace")
        return replace(self, gpus_per_node=per_node)


def read_topology(field: Field) -> Topology:
    """A document with any of the fields. Raises InputError and UnknownNameError that name the field."""
    members = field.members((), (*_COUNTS, *_NUMBERS, "algorithms"))
    found: dict[str, object] = {
        name: members[name].whole(least=1, most=_MOST_GPUS) for name in _COUNTS if name in members
    }
    for name in _NUMBERS:
        if name in members:
            least = _LEAST.get(name)
            found[name] = members[name].number(least=least) if least is not None else members[name].number(above=0)
    if "algorithms" in members:
        found["algorithms"] = _algorithms(members["algorithms"])
    return Topology(**found)  # type: ignore[arg-type]  # each has the type of its field


def _algorithms(field: Field) -> tuple[str, ...]:
    names = tuple(one.text() for one in field.elements())
    for name, one in zip(names, field.elements(), strict=True):
        if name not in ALGORITHMS:
            raise UnknownNameError(f"{one.place}: {one.path}", "algorithm", name, ALGORITHMS)
    if RING not in names:
        raise field.error(f"must have {RING}, which all collectives can use")
    return names
