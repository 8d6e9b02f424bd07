"""Ranks that meet, worked by hand. Times are in nanoseconds."""

from __future__ import annotations

import pytest

from emulator_runtime.domain.errors import DeadlockError, InputError
from emulator_runtime.prediction.simulation import QUEUE_DEPTH
from tests.support.traces import Host, hosts, run, times


def test_an_all_reduce_begins_when_the_last_rank_has_come() -> None:
    """Rank 0 is there at 100, rank 1 after 50 of host time and 200 of work at 250; it takes 40."""
    early, late = hosts(2)
    early.launch(100)
    late.at = 50
    late.launch(200)
    calls = [host.all_reduce(0, 40) for host in (early, late)]
    behind = [host.launch(10) for host in (early, late)]
    runs = run(early, late)
    for each, call, kernel in zip(runs, calls, behind, strict=True):
        assert times(each)[call] == (250, 290)
        assert times(each)[kernel] == (290, 300)
    assert [list(each.arrivals_ns) for each in runs] == [[100], [250]]


def test_other_streams_go_on_while_one_waits_for_a_rank() -> None:
    early, late = hosts(2)
    early.all_reduce(0, 40, stream=1)
    beside = early.launch(100, stream=2)
    late.at = 1000
    late.all_reduce(0, 40, stream=1)
    runs = run(early, late)
    assert times(runs[0])[beside] == (0, 100)
    assert runs[0].end_ns == 1040


def test_a_host_waits_for_a_collective_of_others() -> None:
    """The all-reduce ends at 500 + 40; the host goes on 10 later."""
    early, late = hosts(2)
    early.all_reduce(0, 40)
    early.synchronize(early.mark())
    early.at = 10
    kernel = early.launch(5)
    late.at = 500
    late.all_reduce(0, 40)
    assert times(run(early, late)[0])[kernel] == (550, 555)


def test_what_is_behind_a_collective_is_done_in_its_order() -> None:
    """A moment behind the all-reduce holds another stream and, through it, a copy. The kernel that another stream gets at 20 is
    issued before it is known, at 30, that the all-reduce ends at 70."""
    one, two = hosts(2)
    one.all_reduce(0, 40, stream=1)
    behind = one.launch(10, stream=1)
    moment = one.mark(stream=1)
    one.wait(moment, stream=2)
    copy = one.copy(7, stream=2)
    function = one.function(3, stream=2)
    one.at = 20
    beside = one.launch(80, stream=3)
    two.at = 30
    two.all_reduce(0, 40)
    found = times(run(one, two)[0])
    assert found[beside] == (20, 100)
    assert found[behind] == (100, 110)
    assert found[copy] == (110, 117)
    assert found[function] == (117, 120)


def test_the_result_is_the_same_whoever_comes_first_in_the_trace() -> None:
    def program(host: Host, delay: int) -> None:
        for step in range(5):
            host.at += delay
            host.launch(50 + delay)
            host.all_reduce(step, 20, stream=1 if step % 2 else 0)
            host.synchronize(host.mark())

    results = []
    for order in ((0, 1, 2), (2, 0, 1)):
        ranks = hosts(3)
        for host in ranks:
            program(host, 7 * host.rank)
        runs = run(*(ranks[rank] for rank in order))
        results.append({each.trace.rank: times(each) for each in runs})
    assert results[0] == results[1]


def test_messages_begin_when_both_sides_have_come() -> None:
    """A pipeline of 3: 0 sends to 1 at 100, 1 to 2 at 130 after work of 10; 2 has been ready since 0."""
    ranks = hosts(3)
    ranks[0].launch(100)
    first = ranks[0].exchange((1, 8, 0), duration=20)
    receive = ranks[1].exchange((0, 0, 8), duration=20)
    ranks[1].launch(10)
    ranks[1].exchange((2, 8, 0), duration=20)
    last = ranks[2].exchange((1, 0, 8), duration=20)
    runs = run(*ranks)
    assert times(runs[0])[first] == (100, 120)
    assert times(runs[1])[receive] == (100, 120)
    assert times(runs[2])[last] == (130, 150)


def test_messages_of_a_group_wait_for_all_their_partners() -> None:
    ranks = hosts(3)
    both = ranks[0].exchange((1, 8, 8), (2, 8, 8), duration=20)
    ranks[1].at = 50
    one = ranks[1].exchange((0, 8, 8), duration=20)
    ranks[2].at = 90
    ranks[2].exchange((0, 8, 8), duration=20)
    runs = run(*ranks)
    assert times(runs[0])[both] == (90, 110)
    assert times(runs[1])[one] == (50, 70), "its own message only"


def test_messages_between_two_ranks_keep_their_order() -> None:
    one, two = hosts(2)
    sends = [one.exchange((1, 8, 0), duration=10), one.exchange((1, 8, 0), duration=10)]
    two.at = 100
    two.exchange((0, 0, 8), duration=10, stream=1)
    two.at = 300
    two.exchange((0, 0, 8), duration=10, stream=2)
    found = times(run(one, two)[0])
    assert [found[send] for send in sends] == [(100, 110), (300, 310)]


def test_a_rank_may_send_to_itself() -> None:
    one, two = hosts(2)
    call = one.exchange((0, 8, 8), duration=10)
    assert times(run(one, two)[0])[call] == (0, 10)


def test_a_full_queue_behind_a_collective_lets_the_host_go_on_when_it_ends() -> None:
    """Collective and 1023 launches fill the queue. Ten more need the ends at 540 (the all-reduce's), 541, ... 549."""
    one, two = hosts(2)
    one.all_reduce(0, 40)
    for _ in range(QUEUE_DEPTH + 9):
        one.launch(1)
    two.at = 500
    two.all_reduce(0, 40)
    done = run(one, two)[0]
    assert list(done.host_waits.ends_ns) == list(range(540, 550))
    assert done.end_ns == 540 + QUEUE_DEPTH + 9


def test_a_deadlock_names_ranks_communicators_and_calls() -> None:
    """Rank 0 and rank 1 call two collectives in opposite orders on one stream."""
    members = hosts(2)[0].communicators[0].members
    ranks = []
    for rank, order in enumerate(((0, 1), (1, 0))):
        host = hosts(2)[rank]
        other = type(host.communicators[0])(1, "other", rank, members)
        host.communicators = {0: host.communicators[0], 1: other}
        for communicator in order:
            index = host.all_reduce(4, 10)
            record = host.records[index]
            host.records[index] = type(record)(0, 0, 0, 0, communicator, 4, "all_reduce", 10)  # type: ignore[call-arg]
        ranks.append(host)
    with pytest.raises(DeadlockError) as caught:
        run(*ranks)
    text = str(caught.value)
    assert (
        "rank 0: stream 0 of device 0 waits in all_reduce number 4 of communicator world (record 0) for its rank 1"
        in text
    )
    assert (
        "rank 1: stream 0 of device 0 waits in all_reduce number 4 of communicator other (record 0) for its rank 0"
        in text
    )


def test_ranks_that_never_come_are_named() -> None:
    ranks = hosts(20)
    ranks[0].exchange((3, 8, 0), (5, 0, 8), duration=10)
    ranks[1].all_reduce(7, 10, operation="broadcast")
    with pytest.raises(DeadlockError) as caught:
        run(*ranks)
    text = str(caught.value)
    assert "send_receive number 0 of communicator world (record 0) for its ranks 3, 5;" in text
    assert (
        "broadcast number 7 of communicator world (record 0) for its ranks 0, 2, 3, 4, 5, 6, 7, 8, and 11 more" in text
    )


def test_ranks_must_call_the_same_operation() -> None:
    one, two = hosts(2)
    one.all_reduce(0, 10)
    two.all_reduce(0, 10, operation="broadcast")
    with pytest.raises(
        InputError, match=r"rank 1, record 0: number 0 .* is broadcast of 10 bytes, but all_reduce of 10"
    ):
        run(one, two)


def test_a_rank_comes_once_to_a_collective() -> None:
    one, two = hosts(2)
    one.all_reduce(0, 10, stream=1)
    one.all_reduce(0, 10, stream=2)
    two.at = 1
    with pytest.raises(InputError, match="comes a second time"):
        run(one, two)


def test_an_unknown_operation_or_communicator_is_an_error() -> None:
    one, _ = hosts(2)
    one.all_reduce(0, 10, operation="all_dance")
    with pytest.raises(InputError, match="unknown operation 'all_dance'"):
        run(one)
    stranger = Host()
    stranger.all_reduce(0, 10)
    with pytest.raises(InputError, match="rank 0, record 0: the trace has no communicator 0"):
        run(stranger)
