"""Ranks on loopback sockets: joining, failures, messages, and clocks that differ between hosts."""

import contextlib
import errno
import socket
import threading
import time
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.errors import ClusterError, InputError
from emulator_runtime.ipc.frames import Decoder, encode
from emulator_runtime.workloads.ranks.clock_offset import ClockOffset
from emulator_runtime.workloads.ranks.group import Start
from emulator_runtime.workloads.ranks.leader import Leader
from emulator_runtime.workloads.ranks.link import RankLink
from emulator_runtime.workloads.ranks.member import Member
from emulator_runtime.workloads.ranks.options import RANK_PROTOCOL, RankOptions, parse_address, proof_of

FD_SETSIZE = 1024


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.fixture
def options(port):
    def make(rank=0, nodes=2, **changes):
        return RankOptions(
            **{
                "nodes": nodes,
                "rank": rank,
                "host": "127.0.0.1",
                "port": port,
                "work": "w",
                "join_timeout_s": 5.0,
                "barrier_timeout_s": 5.0,
            }
            | changes
        )

    return make


@pytest.fixture
def leader(options):
    leader = Leader(options())
    yield leader
    leader.close()


@pytest.fixture
def in_thread():
    """`in_thread(function)`: runs beside the test; `.result()` waits and answers or raises."""
    threads = []

    class Task:
        def __init__(self, function):
            self._function, self._answer, self._error = function, None, None
            self._thread = threading.Thread(target=self._run)
            threads.append(self._thread)
            self._thread.start()

        def _run(self):
            try:
                self._answer = self._function()
            except BaseException as error:
                self._error = error

        def result(self):
            self._thread.join(10)
            assert not self._thread.is_alive()
            if self._error is not None:
                raise self._error
            return self._answer

    yield Task
    for thread in threads:
        thread.join(10)


@pytest.fixture
def raw(port):
    """A raw connection to rank 0."""
    sockets = []

    def connect():
        sockets.append(socket.create_connection(("127.0.0.1", port), 5))
        return sockets[-1]

    yield connect
    for sock in sockets:
        sock.close()


@pytest.fixture
def pair(leader, options, in_thread):
    """Rank 0 and rank 1, both after the start."""
    member = Member(options(1))
    joined = in_thread(lambda: member.join(3, 2))
    assert leader.join(5, 4) == Start(3, 6)
    assert joined.result() == Start(3, 6)
    yield leader, member
    member.close()


@pytest.mark.alone
def test_a_barrier_tells_all_when_the_last_one_was_done(pair, in_thread):
    leader, member = pair
    now = time.monotonic_ns()
    crossed = in_thread(lambda: member.barrier(1, now, stop=False))
    assert leader.barrier(1, now - 1_000_000, stop=False).end_ns == pytest.approx(now, abs=2_000_000)
    assert crossed.result().end_ns == pytest.approx(now, abs=2_000_000)
    assert crossed.result().end_ns >= now


def test_more_connections_than_select_takes(crowded, pair, in_thread):
    leader, member = pair
    assert all(link.fileno() >= FD_SETSIZE for link in leader._links.values())
    theirs = in_thread(lambda: member.barrier(4, 20, stop=False))
    leader.barrier(4, 10, stop=False)
    theirs.result()


def test_a_leader_that_may_open_no_more_connections_says_so(leader, raw, monkeypatch):
    def refuse():
        raise OSError(errno.EMFILE, "Too many open files")

    raw()
    listener = types.SimpleNamespace(accept=refuse, fileno=leader._listener.fileno, close=leader._listener.close)
    monkeypatch.setattr(leader, "_listener", listener)
    with pytest.raises(
        ClusterError, match=r"rank 0 can't take another connection: Too many open files; raise the limit"
    ):
        leader.join(0, 1)


def test_one_stop_is_everybodys(pair, in_thread):
    leader, member = pair
    crossed = in_thread(lambda: member.barrier(1, 0, stop=True))
    assert leader.barrier(1, 0, stop=False).stop == "rank 1"
    assert crossed.result().stop == "rank 1"


@pytest.mark.parametrize("first", ["leader", "member"])
def test_a_farewell_lasts_until_the_other_rank_has_said_it_too(pair, in_thread, first):
    """A rank that ended at once would close its connection, which the other one takes for a crash in mid-job."""
    both = {"leader": pair[0], "member": pair[1]}
    second = both["member" if first == "leader" else "leader"]
    waiting = in_thread(both[first].farewell)
    waiting._thread.join(0.3)
    assert waiting._thread.is_alive()
    second.farewell()
    waiting.result()


def test_a_leaving_member_ends_the_leader_with_its_reason(pair):
    leader, member = pair
    member.leave("out of memory")
    with pytest.raises(ClusterError, match="rank 1 left: out of memory"):
        leader.barrier(1, 0, stop=False)


def test_a_leaving_leader_ends_the_members_with_its_reason(pair):
    leader, member = pair
    leader.leave("out of memory")
    with pytest.raises(ClusterError, match="rank 0 left: out of memory"):
        member.barrier(1, 0, stop=False)


def test_both_notice_in_the_middle_of_a_step(pair):
    leader, member = pair
    member.check()
    leader.check()
    member.close()
    with pytest.raises(ClusterError, match="rank 1 is gone"):
        leader.check()
    with pytest.raises(ClusterError, match="left the group"):
        member.barrier(1, 0, stop=False)


def test_ranks_that_are_out_of_step_end(pair, in_thread):
    leader, member = pair
    crossed = in_thread(lambda: member.barrier(2, 0, stop=False))
    with pytest.raises(ClusterError, match="rank 1 has done another number of steps than rank 0"):
        leader.barrier(1, 0, stop=False)
    with pytest.raises(ClusterError, match="another number of steps"):
        crossed.result()


def test_a_rank_that_hangs_is_named(leader, options, in_thread):
    leader._options = options(barrier_timeout_s=0.2)
    member = Member(options(1))
    joined = in_thread(lambda: member.join(0, 1))
    leader.join(0, 1)
    joined.result()
    with pytest.raises(ClusterError, match=r"rank 1 has not done its step for 0\.2 s"):
        leader.barrier(1, 0, stop=False)
    with pytest.raises(ClusterError, match="rank 1 has not done its step"):
        member.barrier(1, 0, stop=False)
    member.close()


def test_a_leader_that_hangs_is_named(pair, options):
    _, member = pair
    member._options = options(1, barrier_timeout_s=0.2)
    with pytest.raises(ClusterError, match=r"rank 0 has not answered for 0\.2 s"):
        member.barrier(1, 0, stop=False)


def test_strangers_do_not_disturb(leader, options, in_thread, raw):
    joined = in_thread(lambda: leader.join(0, 1))
    raw()
    raw().sendall(b"GET / HTTP/1.1\r\n\r\n")
    raw().sendall(encode({"op": "join"}))
    raw().close()
    member = Member(options(1))
    assert member.join(0, 1) == Start(0, 2)
    assert joined.result() == Start(0, 2)
    member.close()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"nodes": 3}, "rank 0 expects 2 nodes, not rank 1 of 3; give all pods the same --nodes"),
        ({"rank": 2}, "rank 0 expects 2 nodes, not rank 2 of 2"),
        ({"work": "x"}, r"rank 0 trains something else \(w\)"),
    ],
)
def test_a_rank_that_does_not_belong_is_told_why(leader, options, in_thread, changes, reason):
    joined = in_thread(lambda: leader.join(0, 1))
    with pytest.raises(ClusterError, match=reason):
        Member(options(**({"rank": 1} | changes))).join(0, 1)
    good = Member(options(1))
    good.join(0, 1)
    joined.result()
    good.close()


def say_join(sock, options, progress, **changes):
    """Join as rank 0 expects it, without a secret, over a raw connection."""
    hello = Decoder().feed(sock.recv(4096))[0]
    sock.sendall(encode(options.join_message(progress, 1, proof_of("", hello["nonce"], options.rank)) | changes))


@pytest.mark.parametrize(("theirs", "ours"), [("", "s"), ("t", "s"), ("s", "")])
def test_a_rank_without_the_secret_is_refused_and_disturbs_nobody(leader, options, in_thread, theirs, ours):
    joined = in_thread(lambda: leader.join(0, 1, ours))
    good = Member(options(1))
    with pytest.raises(ClusterError, match="rank 0 has another secret from its sharing manager"):
        Member(options(1)).join(0, 1, theirs)
    good.join(0, 1, ours)
    assert joined.result() == Start(0, 2)
    good.close()


def test_a_proof_that_is_no_text_of_ours_or_was_seen_on_another_connection_is_refused(leader, options, in_thread, raw):
    joined = in_thread(lambda: leader.join(0, 1))
    first, second, third = raw(), raw(), raw()
    nonce = Decoder().feed(first.recv(4096))[0]["nonce"]
    for sock, proof in ((second, proof_of("", nonce, 1)), (third, "\u00e9")):
        sock.recv(4096)
        sock.sendall(encode(options(1).join_message(0, 1, proof)))
        assert b"rank 0 has another secret" in sock.recv(4096)
    member = Member(options(1))
    member.join(0, 1)
    assert joined.result() == Start(0, 2)
    member.close()


def test_a_proof_is_of_one_rank_and_of_one_start():
    proofs = {proof_of(secret, nonce, rank) for secret in ("s", "t") for nonce in ("1", "2") for rank in (1, 2)}
    assert len(proofs) == 8


def test_a_leader_of_another_version_is_named(options, port, in_thread):
    def greet():
        with (
            socket.create_server(("127.0.0.1", port)) as listener,
            contextlib.closing(listener.accept()[0]) as connection,
        ):
            connection.sendall(encode({"op": "hello", "version": 99, "nonce": "n"}))
            connection.recv(4096)

    server = in_thread(greet)
    time.sleep(0.1)
    with pytest.raises(ClusterError, match="rank 0 runs another version of emugpu"):
        Member(options(1)).join(0, 1)
    server.result()


def test_another_version_is_told_why(leader, options, in_thread, raw):
    joined = in_thread(lambda: leader.join(0, 1))
    sock = raw()
    say_join(sock, options(1), 0, version=99)
    assert b"another version of emugpu" in sock.recv(4096)
    member = Member(options(1))
    member.join(0, 1)
    joined.result()
    member.close()


def test_a_rank_may_come_back_before_the_start(leader, options, in_thread, raw):
    leader.nodes = 3
    three = {"nodes": 3}
    joined = in_thread(lambda: leader.join(9, 1))
    gone = raw()
    say_join(gone, options(2, **three), 1)
    time.sleep(0.1)
    gone.close()
    time.sleep(0.1)
    for progress in (7, 8):
        say_join(raw(), options(1, **three), progress)
        time.sleep(0.1)
    member = Member(options(2, **three))
    assert member.join(9, 1) == Start(8, 3)
    assert joined.result() == Start(8, 3)
    member.close()


def test_a_member_finds_a_leader_that_comes_later(options, in_thread):
    member = Member(options(1))
    joined = in_thread(lambda: member.join(0, 1))
    time.sleep(0.2)
    leader = Leader(options())
    leader.join(0, 1)
    assert joined.result() == Start(0, 2)
    member.close()
    leader.close()


def test_a_member_tells_what_it_waits_for(options, monkeypatch):
    monkeypatch.setattr("emulator_runtime.workloads.ranks.member._NOTIFY_EVERY_NS", 0)
    lines = []
    with pytest.raises(
        ClusterError, match=r"rank 0 at 127\.0\.0\.1:\d+ can't be reached for 0\.1 s \(Connection refused"
    ):
        Member(options(1, join_timeout_s=0.1, notify=lines.append)).join(0, 1)
    assert "waiting for rank 0 at 127.0.0.1" in lines[0]


def test_a_leader_tells_who_is_missing(options, monkeypatch):
    monkeypatch.setattr("emulator_runtime.workloads.ranks.leader._NOTIFY_EVERY_NS", 0)
    lines = []
    leader = Leader(options(nodes=20, join_timeout_s=0.1, notify=lines.append))
    with pytest.raises(ClusterError, match="ranks 1, 2, 3, 4, 5, 6, 7, 8 and 11 more did not come within"):
        leader.join(0, 1)
    assert lines[0].startswith("waiting for ranks 1, 2")


def test_a_port_that_is_taken(options, leader):
    with pytest.raises(InputError, match="--rendezvous: rank 0 can't listen on port"):
        Leader(options())


def test_a_wrong_answer_of_rank_0(options, port, in_thread):
    def answer(*messages):
        with socket.create_server(("127.0.0.1", port)) as listener:
            connection = listener.accept()[0]
            with contextlib.closing(connection):
                connection.sendall(encode({"op": "hello", "version": RANK_PROTOCOL, "nonce": "n"}))
                connection.recv(4096)
                for message in messages:
                    connection.sendall(message)
                    connection.recv(4096)

    start = {"op": "start", "first": 0, "gpus": 2, "received_ns": 0, "sent_ns": 0}
    server = in_thread(lambda: answer(encode(start), encode({"op": "cake"})))
    time.sleep(0.1)
    member = Member(options(1))
    member.join(0, 1)
    with pytest.raises(ClusterError, match="rank 0 answered 'cake' where 'go' was due"):
        member.barrier(1, 0, stop=False)
    member.close()
    server.result()


@given(
    st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7)), min_size=1, max_size=40),
    st.integers(-(10**15), 10**15),
)
def test_the_offset_is_right_up_to_half_the_shortest_round_trip(delays, ahead):
    offset, now = ClockOffset(), 10**12
    for there, back in delays:
        received = now + there + ahead
        offset.add(now, received, received + 5_000, now + there + 5_000 + back)
        now += 10**9
    allowed = min((there + back) // 2 + 20_500 * age for age, (there, back) in enumerate(reversed(delays)))
    assert abs(offset.ahead_ns - ahead) <= allowed + 1
    assert offset.to_own(offset.to_theirs(77)) == 77


def test_the_offset_follows_clocks_that_drift_apart():
    offset = ClockOffset()
    for second in range(1000):
        now, ahead = second * 10**9, second * 10_000
        offset.add(now, now + 50_000 + ahead, now + 50_000 + ahead, now + 100_000)
    assert abs(offset.ahead_ns - ahead) <= 20_000


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:0", "host:65536", "host:x", "host:²"])
def test_what_is_no_address(text):
    with pytest.raises(InputError, match="--rendezvous: must be HOST:PORT"):
        parse_address(text, "--rendezvous")


def test_addresses():
    assert parse_address("trainer-0.trainer:29500", "p") == ("trainer-0.trainer", 29500)
    assert parse_address("[fd00::1]:29500", "p") == ("fd00::1", 29500)


def test_a_link_whose_bytes_are_no_message():
    ours, theirs = socket.create_server(("127.0.0.1", 0)), None
    with ours:
        theirs = socket.create_connection(ours.getsockname())
        link = RankLink(ours.accept()[0], "rank 1")
    theirs.sendall(b"\xff" * 10)
    with pytest.raises(ClusterError, match="rank 1 sent what is no message"):
        link.receive(1.0, lambda: None)
    theirs.close()
    with pytest.raises(ClusterError, match="rank 1 is gone"):
        for _ in range(100):
            link.send({"op": "x", "text": "y" * 10_000})
            time.sleep(0.01)
    link.close()
