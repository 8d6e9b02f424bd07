"""Jobs of which some ranks stand for others, worked by hand. Times are in nanoseconds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from emulator_runtime.domain.errors import DeadlockError, InputError
from emulator_runtime.prediction.links import Links
from emulator_runtime.prediction.reading import Manifest, read_manifest, write_manifest
from emulator_runtime.prediction.records import Collective, Communicator, Trace
from emulator_runtime.prediction.represented import UNKNOWN, Communicators, VirtualRanks, ranges_of, ranges_text
from emulator_runtime.prediction.simulation import simulate
from tests.support.traces import Host, Stated, run, times

STAGES = VirtualRanks(8, 4, {0: (0, 1, 2, 3), 4: (4, 5, 6, 7)})
"""Two stages of four ranks, each on a node of its own."""


def host(rank: int, *groups: Sequence[int], virtual: VirtualRanks = STAGES) -> Host:
    """A recorded rank with a communicator of each of these groups of ranks, numbered from 0; the key is the group."""
    own = Communicators(virtual, rank)
    communicators = {
        number: own.communicator_of(number, str(tuple(group)), list(group).index(rank), group)
        for number, group in enumerate(groups)
    }
    return Host(rank, communicators=communicators)


def collective(of: Host, communicator: int, duration: int, number: int = 0, stream: int = 0) -> int:
    record = Collective(of.at, 0, 0, stream, communicator, number, "all_reduce", duration)
    of.records.append(record)
    return len(of.records) - 1


def message(of: Host, communicator: int, *peers: tuple[int, int, int]) -> int:
    size = max(max(sent, received) for _, sent, received in peers)
    of.records.append(Collective(of.at, 0, 0, 1, communicator, 0, "send_receive", size, peers))
    return len(of.records) - 1


def test_ranks_of_one_trace_meet_at_once() -> None:
    """The four ranks of a stage are one trace, so all are there when it is."""
    first = host(0, (0, 1, 2, 3))
    first.at = 70
    call = collective(first, 0, 30)
    assert times(run(first)[0])[call] == (70, 100)


def test_traces_meet_where_all_ranks_do() -> None:
    """All eight ranks are two traces: the second is there at 90."""
    one, other = host(0, range(8)), host(4, range(8))
    one.at, other.at = 10, 90
    calls = collective(one, 0, 25), collective(other, 0, 25)
    assert [times(each)[call] for each, call in zip(run(one, other), calls, strict=True)] == [(90, 115), (90, 115)]


def test_messages_go_to_the_trace_that_stands_for_the_next_stage() -> None:
    """Stage 0 computes 50 and sends; stage 1 receives, computes 20 and answers."""
    one, other = host(0, (0, 4)), host(4, (0, 4))
    one.launch(50, stream=1)
    forward = message(one, 0, (1, 7, 0))
    backward = message(one, 0, (1, 0, 7))
    message(other, 0, (0, 0, 7))
    other.launch(20, stream=1)
    message(other, 0, (0, 7, 0))
    found = times(run(one, other)[0])
    assert found[forward] == (50, 57)
    assert found[backward] == (77, 84)


def test_a_ring_within_a_trace_meets_itself() -> None:
    """Each of four equal ranks sends to the next one and receives from the one before: nobody waits."""
    ring = host(0, (0, 1, 2, 3))
    call = message(ring, 0, (1, 9, 0), (3, 0, 9))
    assert times(run(ring)[0])[call] == (0, 9)


def test_traces_meet_in_communicators_that_are_alike() -> None:
    """Ranks 0 and 5 stand for the even and the odd ones. Rank 0 is in the pair (0, 1), rank 5 in (4, 5): the same for both."""
    virtual = VirtualRanks(8, 8, {0: (0, 2, 4, 6), 5: (1, 3, 5, 7)})
    one, other = host(0, (0, 1), virtual=virtual), host(5, (4, 5), virtual=virtual)
    other.at = 40
    call = collective(one, 0, 5)
    collective(other, 0, 5)
    assert times(run(one, other)[0])[call] == (40, 45)


def test_several_that_are_alike_are_kept_apart_by_their_order() -> None:
    virtual = VirtualRanks(8, 8, {0: (0, 2, 4, 6), 5: (1, 3, 5, 7)})
    one = host(0, (0, 1), (0, 7), virtual=virtual)
    other = host(5, (4, 5), (2, 5), virtual=virtual)
    collective(one, 1, 5, stream=1)
    late = collective(one, 0, 5, stream=2)
    collective(other, 1, 5, stream=1)
    other.at = 60
    collective(other, 0, 5, stream=2)
    assert times(run(one, other)[0])[late] == (60, 65)


def test_a_job_of_many_ranks_costs_what_its_traces_cost() -> None:
    ranks = 3072
    virtual = VirtualRanks(ranks, 8, {0: tuple(range(ranks))})
    only = host(0, range(ranks), virtual=virtual)
    calls = [collective(only, 0, 3, number) for number in range(50)]
    assert times(run(only)[0])[calls[-1]] == (147, 150)


def test_the_deadlock_names_ranks_and_calls() -> None:
    one, other = host(0, range(8)), host(4, range(8))
    collective(one, 0, 25)
    traces = [each.trace() for each in (one, other)]
    stated = Stated()
    with pytest.raises(DeadlockError) as caught:
        simulate(Trace(traces), lambda place, device: stated, stated)
    assert "waits in all_reduce number 0" in str(caught.value)
    assert "for the job's rank 4" in str(caught.value)


def test_members_have_their_true_places() -> None:
    """Rank 5 is the second GPU of the second node, and its pair with rank 1 is one of the four that share each node's network."""
    virtual = VirtualRanks(8, 4, {1: (0, 1, 2, 3), 5: (4, 5, 6, 7)})
    (pair,) = host(5, (1, 5), virtual=virtual).communicators.values()
    assert pair.members == (("node 0", 1), ("node 1", 1))
    assert pair.seats == (1, 5)
    assert pair.network_share == 0.25
    (whole,) = host(5, range(8), virtual=virtual).communicators.values()
    assert whole.network_share == 1


def test_a_share_of_the_network_makes_a_collective_and_a_message_longer() -> None:
    links = Links(300e9, 32e9, 100e9)
    members = (("node 0", 0), ("node 1", 0))
    whole, part = (Communicator(1, "k", 0, members, (), share) for share in (1.0, 0.125))
    for call in (
        Collective(0, 0, 0, 0, 1, 0, "all_reduce", 10**9),
        Collective(0, 0, 0, 0, 1, 0, "send_receive", 10**9, ((1, 10**9, 0),)),
    ):
        alone, beside = links.duration_ns(call, whole), links.duration_ns(call, part)
        assert beside == pytest.approx(8 * alone, rel=0.02)


@pytest.mark.parametrize("member", [UNKNOWN, 9])
def test_members_that_nobody_stands_for(member: int) -> None:
    with pytest.raises(InputError, match="communicator 0 of rank 0"):
        host(0, (0, member))


def test_the_manifest_says_who_stands_for_whom(tmp_path: Path) -> None:
    virtual = VirtualRanks(12, 4, {0: (0, 1, 2, 3, 8), 4: (4, 5, 6, 7, 9, 10, 11)})
    write_manifest(tmp_path, Manifest(("python",), "A100", 4, 0, virtual=virtual))
    stands_for = json.loads((tmp_path / "trace.json").read_text())["virtual"]["stands_for"]
    assert stands_for == {"0": "0-3, 8", "4": "4-7, 9-11"}
    assert read_manifest(tmp_path).virtual == virtual


@pytest.mark.parametrize(
    "change",
    [{"stands_for": {"0": "0-3", "1": "3"}}, {"stands_for": {"0": "x"}}, {"stands_for": []}, {"gpus_per_node": 0}],
)
def test_a_damaged_manifest_is_said(change: dict[str, object], tmp_path: Path) -> None:
    write_manifest(tmp_path, Manifest(("python",), "A100", 4, virtual=STAGES))
    document = json.loads((tmp_path / "trace.json").read_text())
    document["virtual"].update(change)
    (tmp_path / "trace.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match="isn't the file of a trace"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("ranks", [(), (3,), (0, 1, 2), (1, 5, 6, 9)])
def test_ranges_are_read_as_they_are_written(ranks: tuple[int, ...]) -> None:
    assert ranges_of(ranges_text(ranks)) == ranks
