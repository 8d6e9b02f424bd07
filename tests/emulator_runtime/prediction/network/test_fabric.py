"""What collectives take on a topology, worked by hand. An A100's NVLink has 300 GB/s one way, of which 234 are reached; a network
of 100 Gbit/s has 12.5 GB/s, of which 11.5 are reached."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator_runtime.domain.errors import InputError
from emulator_runtime.prediction.links import Links
from emulator_runtime.prediction.network.fabric import CARD, HOST, PEER, RACK, Fabric
from emulator_runtime.prediction.network.places import Places
from emulator_runtime.prediction.network.topology import RING, TREE, Topology
from emulator_runtime.prediction.records import Collective, Communicator, RankTrace

MILLION, BILLION = 10**6, 10**9


def world(ranks: int, per_node: int = 8) -> tuple[Communicator, list[RankTrace]]:
    """One communicator; the trace has its rank 0 only."""
    members = tuple((f"node-{rank // per_node}", rank % per_node) for rank in range(ranks))
    communicator = Communicator(0, "world", 0, members)
    return communicator, [RankTrace(0, [], {0: communicator})]


def fabric(ranks: list[RankTrace], topology: Topology, peer: float = 300e9) -> Fabric:
    peer = peer if topology.nvlink_domain != 1 else 0.0
    return Fabric(topology, Places(topology, ranks, nvlink=peer > 0), peer, 25e9)


def took_us(topology: Topology, operation: str, size: int, ranks: int, per_node: int = 8) -> float:
    communicator, traces = world(ranks, per_node)
    call = Collective(0, 0, 0, 0, 0, 0, operation, size)
    return fabric(traces, topology).duration_ns(call, communicator) / 1000


@settings(max_examples=400, deadline=None)
@given(
    operation=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather"]),
    size=st.integers(0, 10**12),
    ranks=st.integers(2, 2048),
    per_node=st.sampled_from([1, 2, 4, 8]),
    peer=st.sampled_from([0.0, 50e9, 300e9]),
    gbps=st.sampled_from([10.0, 100.0, 3200.0]),
)
def test_ring_and_tree_on_one_rack_take_what_the_emulated_nccl_takes(
    operation: str, size: int, ranks: int, per_node: int, peer: float, gbps: float
) -> None:
    communicator, traces = world(ranks, per_node)
    call = Collective(0, 0, 0, 0, 0, 0, operation, size)
    found = fabric(traces, Topology(network_gbps=gbps, algorithms=(RING, TREE)), peer).duration_ns(call, communicator)
    assert found == Links(peer, 25e9, gbps * 1e9 / 8).duration_ns(call, communicator)


@pytest.mark.parametrize("peer", [0.0, 300e9])
@pytest.mark.parametrize("per_node", [1, 2])
def test_messages_take_what_the_emulated_nccl_takes(peer: float, per_node: int) -> None:
    communicator, traces = world(2, per_node)
    call = Collective(0, 0, 0, 0, 0, 0, "send_receive", 0, ((1, 70 * MILLION, 90 * MILLION),))
    found = fabric(traces, Topology(), peer).duration_ns(call, communicator)
    assert found == Links(peer, 25e9, 12.5e9).duration_ns(call, communicator)


def test_a_rank_alone_takes_no_time() -> None:
    assert took_us(Topology(), "all_reduce", BILLION, ranks=1) == 0


def test_a_hierarchical_all_reduce_crosses_nodes_with_one_part_for_each_place() -> None:
    """1 MB on 4 nodes of 8, with LL128 (15/16 of the bytes are data). Latency: 14 + 2 x 7 steps of 1.9 inside + 2 x 3 of 4
    outside. Inside 2 x 7/8 MB over NVLink; between 2 x 3/4 MB out of each node. The best tree takes 251 us, the best ring 324."""
    inside, between = 1.75e6 / (234e9 * 15 / 16) * 1e6, 1.5e6 / (11.5e9 * 15 / 16) * 1e6
    expected = 14 + 14 * 1.9 + 6 * 4 + inside + between
    assert took_us(Topology(), "all_reduce", MILLION, ranks=32) == pytest.approx(expected, abs=0.001)
    assert took_us(Topology(algorithms=(RING, TREE)), "all_reduce", MILLION, ranks=32) == pytest.approx(251.0, abs=0.1)
    assert took_us(Topology(algorithms=(RING,)), "all_reduce", MILLION, ranks=32) == pytest.approx(324.1, abs=0.1)


def test_which_algorithm_is_fastest_depends_on_the_network() -> None:
    """1 GB: a ring moves 2 x 31/32 GB over the network, a hierarchical all-reduce 2 x 3/4 GB, but adds NVLink's time to it."""
    hierarchical = 8.4 + 14 * 3.4 + 6 * 14 + 1.75e9 / 234e9 * 1e6 + 1.5e9 / 11.5e9 * 1e6
    assert took_us(Topology(), "all_reduce", BILLION, ranks=32) == pytest.approx(hierarchical, abs=0.001)
    faster = Topology(network_gbps=1600)
    ring = 8.4 + 56 * 3.4 + 6 * 14 + 2 * 31 / 32 * 1e9 / (200e9 * 0.92) * 1e6
    assert took_us(faster, "all_reduce", BILLION, ranks=32) == pytest.approx(ring, abs=0.001)


def test_an_nvlink_domain_may_span_nodes() -> None:
    """72 GPUs in nodes of 4 that NVLink joins: as on one node of 72."""
    joined = Topology(gpus_per_node=4, nvlink_domain=72)
    assert took_us(joined, "all_gather", BILLION, 72, 4) == took_us(
        Topology(gpus_per_node=72), "all_gather", BILLION, 72
    )
    assert took_us(Topology(gpus_per_node=4), "all_gather", BILLION, 72, 4) > 10 * took_us(
        joined, "all_gather", BILLION, 72, 4
    )


def test_pairs_joined_by_nvlink_exchange_over_their_hosts_links() -> None:
    """8 GPUs in pairs: a ring has 4 steps over NVLink and 3 over the host (of 7), and is as fast as the host's link, 20 GB/s."""
    pairs = Topology(nvlink_domain=2, algorithms=(RING,))
    expected = 8.4 + 4 * 3.4 + 3 * 5.7 + 7 / 8 * 1e9 / 20e9 * 1e6
    assert took_us(pairs, "all_gather", BILLION, ranks=8) == pytest.approx(expected, abs=0.001)


def test_nodes_without_nvlink_use_their_hosts_links() -> None:
    expected = 8.4 + 7 * 5.7 + 7 / 8 * 1e9 / 20e9 * 1e6
    assert took_us(Topology(nvlink_domain=1), "all_gather", BILLION, ranks=8) == pytest.approx(expected, abs=0.001)


def test_an_all_to_all_adds_up_what_leaves_a_node() -> None:
    """16 ranks on 2 nodes, 1 GB each: a node sends 8 x 8/16 GB to the other."""
    expected = 8.4 + 14 * 3.4 + 1 * 14 + 4e9 / 11.5e9 * 1e6
    assert took_us(Topology(), "all_to_all", BILLION, ranks=16) == pytest.approx(expected, abs=0.001)


def test_oversubscription_slows_what_leaves_a_rack() -> None:
    """4 ranks on 4 nodes, 2 a rack, whose uplink is 2 x 12.5 / 4 GB/s: a rack sends 2 x 2/4 GB, 11.5 / 2 GB/s of which pass."""
    racks = Topology(nodes_per_rack=2, oversubscription=4, rack_latency_us=5, network_latency_us=1)
    expected = 8.4 + 3 * (14 + 1) + 1 * 5 + 1e9 / 5.75e9 * 1e6
    assert took_us(racks, "all_to_all", BILLION, ranks=4, per_node=1) == pytest.approx(expected, abs=0.001)
    same = Topology(nodes_per_rack=4, oversubscription=4)
    assert took_us(same, "all_to_all", BILLION, 4, 1) == pytest.approx(8.4 + 3 * 14 + 0.75e9 / 11.5e9 * 1e6, abs=0.001)


def test_a_ring_has_the_latencies_of_the_racks_that_it_leaves() -> None:
    """8 nodes in 2 racks: 7 steps over the network, 1 of them between racks; the uplink of 4 nodes isn't what limits."""
    racks = Topology(nodes_per_rack=4, oversubscription=2, network_latency_us=1, rack_latency_us=3, algorithms=(RING,))
    expected = 8.4 + 7 * (14 + 1) + 3 + 7 / 8 * 1e9 / 11.5e9 * 1e6
    assert took_us(racks, "all_gather", BILLION, ranks=8, per_node=1) == pytest.approx(expected, abs=0.001)


def test_a_card_serves_its_part_of_the_gpus() -> None:
    """One rank a node reaches one of 8 cards; 8 ranks a node reach all."""
    cards = Topology(gpus_per_node=8, network_cards=8)
    members = tuple((f"node-{rank // 8}", rank % 8) for rank in range(16))
    pair = Communicator(1, "pair", 0, (members[0], members[8]))
    everyone = Communicator(0, "world", 0, members)
    other = RankTrace(8, [], {0: Communicator(0, "world", 8, members), 1: Communicator(1, "pair", 1, pair.members)})
    ranks = [RankTrace(0, [], {0: everyone, 1: pair}), other]
    call = Collective(0, 0, 0, 0, 0, 0, "all_gather", BILLION)
    found = fabric(ranks, cards)
    assert found.duration_ns(call, pair) / 1000 == pytest.approx(8.4 + 14 + 0.5e9 / (11.5e9 / 8) * 1e6, abs=0.001)
    assert found.layout(everyone).cards == 8


def test_messages_between_racks_use_card_and_uplink() -> None:
    """0 sends 1 GB to each of 1 (its rack) and 2 (the other, whose uplink is 6.25 GB/s): 2 GB over its card, 1 over the
    uplink."""
    topology = Topology(nodes_per_rack=2, oversubscription=4, rack_latency_us=3)
    communicator, traces = world(4, 1)
    call = Collective(0, 0, 0, 0, 0, 0, "send_receive", 0, ((1, BILLION, 0), (2, BILLION, 0)))
    found = fabric(traces, topology)
    expected = 8.4 + 14 + 3 + 2e9 / 11.5e9 * 1e6
    assert found.duration_ns(call, communicator) / 1000 == pytest.approx(expected, abs=0.001)
    uses = dict(found.route(call, communicator))
    half = 0.5 * 1e9 / 11.5e9 * 1e6 / expected
    assert uses[CARD, 0, 0, "out"] == pytest.approx(2 * half)
    assert uses[CARD, 1, 0, "in"] == uses[CARD, 2, 0, "in"] == pytest.approx(half)
    assert uses[RACK, 0, 0, "out"] == uses[RACK, 1, 0, "in"] == pytest.approx(2 * half)
    assert len(uses) == 5


def test_a_collective_uses_its_links_in_both_directions() -> None:
    """NVLink of 16 GPUs is busy for as long as the network's bytes need there; the cards nearly all the time."""
    communicator, traces = world(16)
    found = fabric(traces, Topology(algorithms=(RING,)))
    uses = dict(found.route(Collective(0, 0, 0, 0, 0, 0, "all_gather", BILLION), communicator))
    assert set(uses) == {
        *((PEER, gpu, 0, way) for gpu in range(16) for way in ("in", "out")),
        *((CARD, node, 0, way) for node in range(2) for way in ("in", "out")),
    }
    assert uses[CARD, 1, 0, "in"] == pytest.approx(1, abs=0.001)
    assert uses[PEER, 5, 0, "out"] == pytest.approx(11.5 / 234, abs=0.001)
    pcie = fabric(traces, Topology(nvlink_domain=1, gpus_per_node=16))
    uses = dict(pcie.route(Collective(0, 0, 0, 0, 0, 0, "all_gather", BILLION), communicator))
    assert {kind for kind, *_ in uses} == {HOST}


def test_ranks_are_placed_anew() -> None:
    communicator, traces = world(8)
    nodes = [site.node for site in Places(Topology(nodes=3), traces, nvlink=True).of(communicator)]
    assert nodes == [0, 0, 0, 1, 1, 1, 2, 2]
    nodes = [site.node for site in Places(Topology(gpus_per_node=2), traces, nvlink=True).of(communicator)]
    assert nodes == [0, 0, 1, 1, 2, 2, 3, 3]
    with pytest.raises(InputError, match="--nodes: 1 node of 4 GPUs have no room for the 8 ranks"):
        Places(Topology(nodes=1, gpus_per_node=4), traces, nvlink=True)


def test_ranks_are_known_by_their_own_records_where_each_sees_one_gpu() -> None:
    """All ranks of a node see their GPU as number 0."""
    members = (("one", 0), ("one", 0), ("two", 0), ("two", 0))
    ranks = [RankTrace(rank, [], {0: Communicator(0, "world", rank, members)}) for rank in range(4)]
    odd = Communicator(1, "odd", 0, (members[1], members[3]))
    ranks[1] = RankTrace(1, [], {0: ranks[1].communicators[0], 1: odd})
    ranks[3] = RankTrace(3, [], {0: ranks[3].communicators[0], 1: Communicator(1, "odd", 1, odd.members)})
    places = Places(Topology(), ranks, nvlink=True)
    assert [site.gpu for site in places.of(ranks[0].communicators[0])] == [0, 1, 2, 3]
    assert [site.gpu for site in places.of(odd)] == [1, 3]
    stranger = Communicator(2, "stranger", 0, (members[0], members[2]))
    assert [site.node for site in places.of(stranger)] == [0, 1], "by their hosts"
    with pytest.raises(InputError, match="number 0 of communicator stranger, so that it can't be placed anew"):
        Places(Topology(gpus_per_node=2), ranks, nvlink=True).of(stranger)
