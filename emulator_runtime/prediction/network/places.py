"""Where the ranks of a trace are in a topology: node, NVLink domain, rack and network card of each member of a communicator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from emulator_runtime.domain.errors import InputError
from emulator_runtime.prediction.network.topology import Topology
from emulator_runtime.prediction.records import Communicator, RankTrace


@dataclass(frozen=True, slots=True)
class Site:
    """Numbers count over the cluster, but for `card`, which is one of its node's. `island`: what NVLink or the links of a node
    join, so that the network joins islands."""

    gpu: int
    node: int
    domain: int
    island: int
    rack: int
    card: int


class Places:
    """The sites of ranks."""

    def __init__(self, topology: Topology, ranks: Sequence[RankTrace], *, nvlink: bool) -> None:
        """`nvlink`: whether devices have any. Raises InputError if the ranks have no room."""
        self._at: dict[tuple[str, int], int] = {
            (joined.key, joined.rank): rank.rank for rank in ranks for joined in rank.communicators.values()
        }
        """Ranks of the job by their rank in a communicator."""
        known = [joined for rank in ranks for joined in rank.communicators.values()]
        self._world = max(known, key=lambda joined: len(joined.members), default=None)
        count = max([rank.rank + 1 for rank in ranks] + [len(self._world.members) if self._world else 0], default=0)
        self._topology = topology.placed(count)
        self._domain = (topology.nvlink_domain or 0) if nvlink else 1
        self._hosts: dict[str, int] = {}
        """Numbers of recorded nodes."""
        self._nodes = self._placed_nodes(count) if self._topology.gpus_per_node else self._recorded_nodes(known)
        self._per_node = self._topology.gpus_per_node or max(Counter(self._nodes.values()).values(), default=1)
        self._locals = _numbered(self._nodes)
        self._sites: dict[str, tuple[Site, ...]] = {}

    def of(self, communicator: Communicator) -> tuple[Site, ...]:
        """Of its members, by rank. Raises InputError if ranks are placed anew and a member's rank isn't known."""
        sites = self._sites.get(communicator.key)
        if sites is None:
            sites = self._sites[communicator.key] = tuple(
                self._of_member(communicator, place) for place in range(len(communicator.members))
            )
        return sites

    def _of_member(self, communicator: Communicator, place: int) -> Site:
        rank = self._rank(communicator, place)
        if rank in self._nodes:
            return self._site(self._nodes[rank], self._locals[rank])
        if self._topology.gpus_per_node:
            what = f"which rank is number {place} of communicator {communicator.key}"
            raise InputError("TRACE", f"doesn't say {what}, so that it can't be placed anew: record all processes")
        host = communicator.members[place][0]
        before = sum(other == host for other, _ in communicator.members[:place])
        return self._site(self._hosts.setdefault(host, len(self._hosts)), before)

    def _placed_nodes(self, count: int) -> dict[int, int]:
        assert self._topology.gpus_per_node is not None
        return {rank: rank // self._topology.gpus_per_node for rank in range(count)}

    def _recorded_nodes(self, known: Sequence[Communicator]) -> dict[int, int]:
        """Nodes are numbered by their first rank."""
        hosts: dict[int, str] = {}
        for joined in known:
            rank = self._at[joined.key, joined.rank]
            hosts[rank] = joined.members[joined.rank][0]
        if self._world is not None:
            for place, (host, _) in enumerate(self._world.members):
                hosts.setdefault(self._at.get((self._world.key, place), place), host)
        return {rank: self._hosts.setdefault(hosts[rank], len(self._hosts)) for rank in sorted(hosts)}

    def _rank(self, communicator: Communicator, place: int) -> int:
        """A rank that has no file of its own is known by its place in a communicator of all; -1: it isn't known."""
        rank = self._at.get((communicator.key, place))
        if rank is None and self._world is not None and len(communicator.members) == len(self._world.members):
            rank = place
        if rank is None:
            rank = self._alike(communicator.members[place])
        return -1 if rank is None else rank

    def _alike(self, member: tuple[str, int]) -> int | None:
        """The rank on the same device."""
        if self._world is None or self._world.members.count(member) != 1:
            return None
        place = self._world.members.index(member)
        return self._at.get((self._world.key, place), place)

    def _site(self, node: int, local: int) -> Site:
        topology, per_node = self._topology, self._per_node
        size = self._domain or per_node
        if size > per_node:  # a domain has whole nodes
            domain = island = node // max(1, size // per_node)
        else:
            domain, island = node * -(-per_node // size) + local // size, node
        rack = node // topology.nodes_per_rack if topology.nodes_per_rack else 0
        card = local * topology.network_cards // max(per_node, local + 1)
        return Site(node * per_node + local, node, domain, island, rack, card)


def _numbered(nodes: Mapping[int, int]) -> dict[int, int]:
    """The number of each rank among those of its node."""
    counts: Counter[int] = Counter()
    found = {}
    for rank, node in nodes.items():
        found[rank] = counts[node]
        counts[node] += 1
    return found
