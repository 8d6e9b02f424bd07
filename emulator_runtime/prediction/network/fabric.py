"""How long collectives take on a topology, and how much of which links they use meanwhile.

Costs are alpha-beta ones: steps times their latency, and bytes on the link that takes longest. Latencies and efficiencies are
those of `links.py`. On one rack whose NVLink domains are its nodes, ring and tree take what they take there, to the nanosecond.

- ring: the order of its ranks keeps neighbours together, so it leaves each NVLink domain, node and rack once.
- tree: chains within islands (what NVLink or a node joins), NCCL's double binary trees between them.
- hierarchical: reduce-scatter within NVLink domains, a ring between them for each place in a domain, all-gather within.
- all_to_all: each rank sends its part to each other, so that what ranks send out of a node or a rack adds up.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from emulator_runtime.domain.gpu import GpuSpec
from emulator_runtime.prediction import links as nccl
from emulator_runtime.prediction.links import SEND_RECEIVE, bytes_factor, rounded_ns
from emulator_runtime.prediction.network.places import Places, Site
from emulator_runtime.prediction.network.topology import HIERARCHICAL, TREE, Topology
from emulator_runtime.prediction.records import Collective, Communicator, RankTrace

PEER, HOST, CARD, RACK = "peer", "host", "card", "rack"
"""Kinds of links: NVLink of a GPU, its link to the host, a network card of a node, what a rack has to the others."""
_LINK_OF = {PEER: nccl.NVLINK, HOST: nccl.HOST_LINK, CARD: nccl.NETWORK, RACK: nccl.NETWORK}
_ALL_TO_ALL = "all_to_all"
_HIERARCHICAL_ROUNDS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}

Resource = tuple[str, int, int, str]
"""A link in one direction: its kind, the number of the GPU, node or rack, of the card, and "in" or "out"."""
Route = tuple[tuple[Resource, float], ...]
"""Links, and how much of each is used on average while a collective runs alone (0 to 1)."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A communicator on the topology: how many NVLink domains, islands and racks it touches, and how many ranks the largest has.
    `cards`: the least that an island has of the communicator."""

    ranks: int
    domains: int
    islands: int
    racks: int
    per_domain: int
    per_island: int
    per_rack: int
    cards: int
    even: bool
    """All domains have equally many ranks."""

    @classmethod
    def of(cls, sites: Sequence[Site]) -> Layout:
        domains, islands, racks = (
            Counter(getattr(site, name) for site in sites) for name in ("domain", "island", "rack")
        )
        cards: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)
        for site in sites:
            cards[site.island].add((site.node, site.card))
        return cls(
            len(sites), len(domains), len(islands), len(racks),
            max(domains.values()), max(islands.values()), max(racks.values()),
            min(map(len, cards.values())), len(set(domains.values())) == 1,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cost:
    """`seconds`: of a collective. `busy_s`: how long links of each kind would take for their bytes alone."""

    seconds: float
    busy_s: Mapping[str, float]


@dataclass(slots=True)
class Fabric:
    """A CollectiveEstimator for ranks on a topology."""

    topology: Topology
    places: Places
    peer_bytes_per_s: float
    """NVLink of a GPU, one way; 0: it has none, or none is used."""
    host_bytes_per_s: float
    _layouts: dict[str, Layout] = field(default_factory=dict)

    @classmethod
    def of(cls, topology: Topology, spec: GpuSpec, ranks: Sequence[RankTrace]) -> Fabric:
        """For ranks with devices of one type. Raises InputError if they have no room."""
        peer = spec.peer_link_bytes_per_s if topology.nvlink_domain != 1 else 0.0
        return cls(topology, Places(topology, ranks, nvlink=peer > 0), peer, spec.host_link_bytes_per_s)

    def duration_ns(self, call: Collective, communicator: Communicator) -> int:
        if len(communicator.members) < 2:
            return 0
        if call.operation == SEND_RECEIVE:
            return rounded_ns(self._exchange(call, communicator).seconds)
        return rounded_ns(self.cost(call.operation, call.bytes, self.layout(communicator)).seconds)

    def layout(self, communicator: Communicator) -> Layout:
        found = self._layouts.get(communicator.key)
        if found is None:
            found = self._layouts[communicator.key] = Layout.of(self.places.of(communicator))
        return found

    def cost(self, operation: str, amount_bytes: float, layout: Layout) -> Cost:
        """Of the fastest algorithm and protocol. `amount_bytes`: of the whole buffer, as nccl-tests counts."""
        return min(self._costs(operation, amount_bytes, layout), key=lambda cost: cost.seconds)

    def _costs(self, operation: str, amount_bytes: float, layout: Layout) -> Iterator[Cost]:
        for protocol in (nccl.LOW_LATENCY, nccl.LOW_LATENCY_128, nccl.SIMPLE):
            if protocol == nccl.LOW_LATENCY_128 and not self.peer_bytes_per_s:
                continue  # NCCL uses LL128 on NVLink only
            if operation == _ALL_TO_ALL:
                yield self._all_to_all(amount_bytes, layout, protocol)
                continue
            yield self._ring(operation, amount_bytes, layout, protocol)
            if operation == "all_reduce" and TREE in self.topology.algorithms:
                yield self._tree(amount_bytes, layout, protocol)
            nested = layout.even and layout.domains > 1 and layout.per_domain > 1
            if nested and operation in _HIERARCHICAL_ROUNDS and HIERARCHICAL in self.topology.algorithms:
                yield self._hierarchical(operation, amount_bytes, layout, protocol)

    # ---- algorithms; `size`: bytes of the buffer

    def _ring(self, operation: str, size: float, layout: Layout, protocol: int) -> Cost:
        rounds = 2 if operation == "all_reduce" else 1
        amount = size * bytes_factor(operation, layout.ranks)
        latency_us = self._ring_us(nccl.BASE_US[nccl.RING][protocol], layout, rounds, protocol)
        busy_s = self._busy_s(layout, protocol, peer=amount, host=amount, network=amount)
        return Cost(latency_us / 1e6 + max(busy_s.values()), busy_s)

    def _ring_us(self, base_us: float, layout: Layout, rounds: int, protocol: int) -> float:
        """One step for each place where a ring leaves a rank, a domain, an island, a rack."""
        step_us = [nccl.STEP_US[link][nccl.RING][protocol] for link in (nccl.NVLINK, nccl.HOST_LINK, nccl.NETWORK)]
        between = rounds * (layout.islands - 1)
        latency_us = base_us + rounds * (layout.ranks - layout.domains) * step_us[0]
        latency_us += rounds * (layout.domains - layout.islands) * step_us[1]
        latency_us += between * step_us[2]
        return latency_us + self._extra_us(between, rounds * (layout.racks - 1))

    def _extra_us(self, between: int, racks: int) -> float:
        """For so many steps over the network, of which some are between racks."""
        return between * self.topology.network_latency_us + racks * self.topology.rack_latency_us

    def _tree(self, size: float, layout: Layout, protocol: int) -> Cost:
        """Each rank sends all up and down its trees."""
        step_us = [nccl.STEP_US[link][nccl.TREE][protocol] for link in (nccl.NVLINK, nccl.HOST_LINK, nccl.NETWORK)]
        chain = (layout.ranks + layout.islands - 1) // layout.islands - 1
        over_host = (layout.domains + layout.islands - 1) // layout.islands - 1
        between = 2 * math.ceil(math.log2(layout.islands))
        latency_us = nccl.BASE_US[nccl.TREE][protocol] + 2 * (chain - over_host) * step_us[0]
        latency_us += 2 * over_host * step_us[1]
        latency_us += between * step_us[2]
        latency_us += self._extra_us(between, 2 * math.ceil(math.log2(layout.racks)))
        busy_s = self._busy_s(layout, protocol, peer=2 * size, host=2 * size, network=2 * size)
        return Cost(latency_us / 1e6 + max(busy_s.values()), busy_s)

    def _hierarchical(self, operation: str, size: float, layout: Layout, protocol: int) -> Cost:
        """All places of a domain exchange their part with the other domains at once: their bytes add up on the network."""
        rounds, inside_ranks = _HIERARCHICAL_ROUNDS[operation], layout.per_domain
        between = Layout(
            layout.domains, layout.domains, layout.islands, layout.racks, 1,
            layout.per_island // inside_ranks, layout.per_rack // inside_ranks, layout.cards, even=True,
        )  # fmt: skip
        peer = size * rounds * (inside_ranks - 1) / inside_ranks
        exchanged = size * rounds * (layout.domains - 1) / layout.domains
        step_us = nccl.STEP_US[nccl.NVLINK][nccl.RING][protocol]
        latency_us = nccl.BASE_US[nccl.RING][protocol] + rounds * (inside_ranks - 1) * step_us
        latency_us = self._ring_us(latency_us, between, rounds, protocol)
        busy_s = self._busy_s(layout, protocol, peer=peer, host=exchanged / inside_ranks, network=exchanged)
        between_s = max((busy_s[kind] for kind in (HOST, CARD, RACK) if kind in busy_s), default=0.0)
        return Cost(latency_us / 1e6 + busy_s.get(PEER, 0.0) + between_s, busy_s)

    def _all_to_all(self, size: float, layout: Layout, protocol: int) -> Cost:
        each = size / layout.ranks
        peer = each * (layout.per_domain - 1)
        host = each * (layout.per_island - layout.per_domain)
        out_of_island = each * layout.per_island * (layout.ranks - layout.per_island)
        out_of_rack = each * layout.per_rack * (layout.ranks - layout.per_rack)
        busy_s = self._busy_s(layout, protocol, peer=peer, host=host, network=out_of_island, rack=out_of_rack)
        latency_us = self._ring_us(nccl.BASE_US[nccl.RING][protocol], layout, 1, protocol)
        return Cost(latency_us / 1e6 + max(busy_s.values()), busy_s)

    def _busy_s(
        self, layout: Layout, protocol: int, *, peer: float, host: float, network: float, rack: float | None = None
    ) -> dict[str, float]:
        """By kind of link. Bytes: of a GPU over NVLink and over its host's link, of an island over its cards, of a rack."""
        found, data = {}, nccl.DATA_PART[protocol]
        if self.peer_bytes_per_s:
            found[PEER] = peer / (self._rate(PEER) * data)
        if not self.peer_bytes_per_s or layout.domains > layout.islands:
            found[HOST] = host / (self._rate(HOST) * data)
        if layout.islands > 1:
            found[CARD] = network / (self._rate(CARD) * layout.cards * data)
        if layout.racks > 1:
            found[RACK] = (network if rack is None else rack) / (self._rate(RACK) * data)
        return found

    def _rate(self, kind: str) -> float:
        """Bytes per second of one link that large messages reach."""
        topology = self.topology
        nominal = {
            PEER: self.peer_bytes_per_s,
            HOST: self.host_bytes_per_s or 1e9,
            CARD: (topology.network_bytes_per_s or 1e9) / topology.network_cards,
            RACK: topology.rack_bytes_per_s,
        }[kind]
        return nominal * nccl.EFFICIENCY[_LINK_OF[kind]]

    # ---- messages

    def _exchange(self, call: Collective, communicator: Communicator) -> Cost:
        """The messages of a group share a link: the larger of what is sent and received counts, for each kind of link."""
        sites = self.places.of(communicator)
        own = sites[communicator.rank]
        sent: defaultdict[str, int] = defaultdict(int)
        received: defaultdict[str, int] = defaultdict(int)
        for peer, to_peer, from_peer in call.peers:
            kind = self._kind(own, sites[peer])
            sent[kind] += to_peer
            received[kind] += from_peer
        amounts = {kind: max(sent[kind], received[kind]) for kind in {*sent, *received}}
        over_network = amounts.get(CARD, 0) + amounts.get(RACK, 0)
        if RACK in amounts:
            amounts[CARD] = over_network
        busy_s = {kind: amount / self._rate(kind) for kind, amount in amounts.items() if amount}
        seconds = max((self._message_us(kind) / 1e6 + busy_s[kind] for kind in busy_s), default=0.0)
        return Cost(seconds, busy_s)

    def _kind(self, one: Site, other: Site) -> str:
        if one.rack != other.rack:
            return RACK
        if one.island != other.island:
            return CARD
        return PEER if self.peer_bytes_per_s and one.domain == other.domain else HOST

    def _message_us(self, kind: str) -> float:
        steps_us = nccl.BASE_US[nccl.RING][nccl.SIMPLE] + nccl.STEP_US[_LINK_OF[kind]][nccl.RING][nccl.SIMPLE]
        return steps_us + self._extra_us(int(kind in (CARD, RACK)), int(kind == RACK))

    # ---- links in use

    def route(self, call: Collective, communicator: Communicator) -> Route:
        """The links that a rank's part uses, and how much of each while it runs alone."""
        if len(communicator.members) < 2:
            return ()
        if call.operation == SEND_RECEIVE:
            return self._message_route(call, communicator)
        layout = self.layout(communicator)
        cost = self.cost(call.operation, call.bytes, layout)
        idle = {PEER: layout.ranks == layout.domains, HOST: layout.domains == layout.islands}
        parts = {
            kind: min(1.0, busy_s / cost.seconds)
            for kind, busy_s in cost.busy_s.items()
            if busy_s > 0 and not idle.get(kind, False)
        }
        used: dict[Resource, float] = {}
        for site in self.places.of(communicator):
            for kind, part in parts.items():
                for way in ("in", "out"):
                    used[(*_link(kind, site), way)] = part
        return tuple(used.items())

    def _message_route(self, call: Collective, communicator: Communicator) -> Route:
        """Sender and receiver both have a call for a message; each call has half of its bytes, at both ends."""
        sites, cost = self.places.of(communicator), self._exchange(call, communicator)
        own = sites[communicator.rank]
        used: defaultdict[Resource, float] = defaultdict(float)
        for peer, to_peer, from_peer in call.peers:
            other = sites[peer]
            kind = self._kind(own, other)
            for amount, source, target in ((to_peer, own, other), (from_peer, other, own)):
                for one in ((kind,) if kind != RACK else (CARD, RACK)) if amount else ():
                    part = amount / self._rate(one) / cost.seconds / 2
                    used[(*_link(one, source), "out")] += part
                    used[(*_link(one, target), "in")] += part
        return tuple((resource, min(1.0, part)) for resource, part in used.items())


def _link(kind: str, site: Site) -> tuple[str, int, int]:
    if kind == CARD:
        return kind, site.node, site.card
    return (kind, site.rack, 0) if kind == RACK else (kind, site.gpu, 0)
