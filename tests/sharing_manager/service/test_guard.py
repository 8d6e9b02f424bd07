"""A container that floods the job socket is delayed, others aren't: in manual time, over a real socket."""

import socket

import pytest

from emulator_runtime.domain.errors import RefusedError
from emulator_runtime.ipc.frames import Decoder, encode
from emulator_runtime.ipc.poller import Poller
from sharing_manager.service import guard as guard_module
from sharing_manager.service.guard import Guard
from sharing_manager.service.time_budgets import (
    BURST_NS,
    LOG_INTERVAL_NS,
    MAX_CONNECTIONS,
    MAX_REJECTIONS,
    OPEN_NS,
    REFUSED_NS,
    SHARE_PERCENT,
    TICK_NS,
    GuardCounts,
)

FULL = f"this container has {MAX_CONNECTIONS} connections open; close some"
BAD, GOOD = {"op": "attach"}, {"op": "lease"}
FIRST_BAD = (BURST_NS - OPEN_NS) // REFUSED_NS + 1
"""How many of BAD a new peer is answered at once: the last one may go into debt."""


class Service:
    """Refuses BAD, answers all else; `{"op": "query", "bytes": n}` with much."""

    def __init__(self):
        self.opened, self.closed = [], []
        self.devices = 1

    def on_open(self, connection):
        self.opened.append(connection)

    def on_message(self, connection, message):
        if message["op"] == "attach":
            raise RefusedError("unknown token")
        connection.send({"ok": True, "filler": "x" * message.get("bytes", 0)})

    def on_close(self, connection):
        self.closed.append(connection)

    def whole_devices(self, connection):
        return self.devices


class Guarded:
    def __init__(self, path):
        self.path, self.now_ns, self.who = path, 0, "attacker"
        self.poller, self.service = Poller(), Service()
        self.counts = GuardCounts()
        self.guard = Guard(self.service, lambda _: self.who, lambda: self.now_ns, self.counts)
        guard = self.guard
        self.poller.listen(path, guard.on_message, guard.on_close, on_open=guard.on_open, admit=guard.admit)
        self.sockets = []

    def connect(self, who):
        self.who = who
        self.sockets.append(socket.socket(socket.AF_UNIX))
        self.sockets[-1].connect(str(self.path))
        self.turn()
        return self.sockets[-1]

    def turn(self):
        while self.poller.poll(0):
            pass

    def tick(self, later_ns=TICK_NS):
        self.now_ns += later_ns
        self.guard.turn()
        self.turn()

    def ask(self, sock, *messages):
        sock.sendall(b"".join(encode(message) for message in messages))
        self.turn()
        return answers(sock)


def answers(sock):
    """How many answers have come; -1 where the server hung up."""
    messages = read(sock)
    return -1 if messages[-1:] == [None] else len(messages)


def read(sock):
    """The answers that have come; None in the end where the server hung up."""
    sock.setblocking(False)
    decoder, messages = Decoder(), []
    try:
        while data := sock.recv(1 << 20):
            messages += decoder.feed(data)
    except BlockingIOError:
        sock.setblocking(True)
        return messages
    except ConnectionResetError:
        pass
    return [*messages, None]


@pytest.fixture
def guarded(tmp_path):
    made = Guarded(tmp_path / "sock")
    yield made
    for sock in made.sockets:
        sock.close()
    made.poller.close()


def test_who_asks_too_much_waits_and_the_neighbour_does_not(guarded):
    attacker, neighbour = guarded.connect("attacker"), guarded.connect("neighbour")
    assert guarded.ask(attacker, *[BAD] * 300) == FIRST_BAD
    assert guarded.ask(neighbour, GOOD) == 1
    assert guarded.ask(attacker, BAD) == 0
    answered = 0
    for _ in range(100):  # two seconds
        guarded.tick()
        answered += answers(attacker)
        assert guarded.ask(neighbour, GOOD) == 1
    share = 2_000_000_000 * SHARE_PERCENT // 100 // REFUSED_NS
    assert share // 2 <= answered <= share  # nothing is lost, it comes slowly


def test_all_of_it_is_answered_in_the_end_and_then_nothing_is_due(guarded):
    attacker = guarded.connect("attacker")
    assert guarded.guard.due_ns() is None
    answered = guarded.ask(attacker, *[BAD] * 150)
    while guarded.guard.due_ns() is not None:
        guarded.tick()
        answered += answers(attacker)
    assert answered == 150


def test_another_connection_is_of_no_help(guarded):
    first = guarded.connect("attacker")
    guarded.ask(first, *[BAD] * 300)
    assert guarded.ask(guarded.connect("attacker"), BAD) == 0


def test_connections_take_turns(guarded):
    sockets = [guarded.connect("attacker") for _ in range(3)]
    got = [guarded.ask(sockets[0], *[BAD] * 500), *(guarded.ask(sock, *[BAD] * 50) for sock in sockets[1:])]
    for _ in range(300):
        guarded.tick()
        got = [count + answers(sock) for count, sock in zip(got, sockets, strict=True)]
    assert got[1:] == [50, 50]


def test_many_connections_of_one_peer_are_turned_away(guarded):
    guarded.sockets += [guarded.connect("attacker") for _ in range(MAX_CONNECTIONS)]
    rejected = {"ok": False, "code": "manager-unavailable", "error": FULL}
    assert read(guarded.connect("attacker")) == [rejected, None]
    assert guarded.ask(guarded.connect("neighbour"), GOOD) == 1
    guarded.sockets[0].close()
    guarded.turn()
    assert guarded.ask(guarded.connect("attacker"), GOOD) == 1


def test_who_comes_again_and_again_makes_the_door_rest_and_newcomers_come_in_a_tick(guarded):
    for _ in range(MAX_CONNECTIONS):
        guarded.connect("attacker")
    inside = guarded.sockets[0]
    assert MAX_REJECTIONS >= 50  # with fewer, newcomers wait for those who come again and again
    rejected = [answers(guarded.connect("attacker")) for _ in range(MAX_REJECTIONS + 3)]
    assert rejected == [-1] * MAX_REJECTIONS + [0] * 3  # the last ones wait in the kernel
    assert guarded.ask(inside, GOOD) == 1
    guarded.tick()
    assert [answers(sock) for sock in guarded.sockets[-3:]] == [-1] * 3
    assert guarded.ask(guarded.connect("neighbour"), GOOD) == 1


def test_the_door_counts_those_of_one_tick_only(guarded):
    for _ in range(MAX_CONNECTIONS):
        guarded.connect("attacker")
    for _ in range(MAX_REJECTIONS - 1):
        assert answers(guarded.connect("attacker")) == -1
    guarded.tick()
    assert [answers(guarded.connect("attacker")) for _ in range(2)] == [-1, -1]


def test_peers_that_cant_be_told_apart_have_a_purse_for_each_connection(guarded):
    sockets = [guarded.connect("") for _ in range(MAX_CONNECTIONS + 5)]
    assert guarded.ask(sockets[0], *[BAD] * 300) == FIRST_BAD
    assert [guarded.ask(sock, GOOD) for sock in sockets[1:]] == [1] * (MAX_CONNECTIONS + 4)


def test_turning_away_and_waiting_are_counted_and_told_once_a_minute(guarded, caplog):
    sockets = [guarded.connect("attacker") for _ in range(MAX_CONNECTIONS)]
    for _ in range(3):
        guarded.connect("attacker")
    for sock in sockets[:2]:
        guarded.ask(sock, *[BAD] * 300)
    assert (guarded.counts.rejected, guarded.counts.paused) == (3, 2)
    full = f"job socket: attacker has {MAX_CONNECTIONS} connections open; further ones are rejected"
    waits = "job socket: attacker is delayed: it uses more than its share of the manager's time, or doesn't read its answers"
    assert caplog.messages == [full, waits]
    guarded.tick(LOG_INTERVAL_NS)
    guarded.connect("attacker")
    assert caplog.messages.count(full) == 2


def test_who_doesnt_read_is_not_answered_until_it_does(guarded, monkeypatch):
    monkeypatch.setattr(guard_module, "MAX_UNREAD_BYTES", 100_000)
    deaf = guarded.connect("attacker")
    deaf.sendall(encode({"op": "query", "bytes": 200_000}) * 20)
    for _ in range(50):
        guarded.tick()
    (connection,) = guarded.service.opened
    assert connection.unsent_bytes < 500_000
    decoder, count = Decoder(), 0
    while count < 20:
        count += len(decoder.feed(deaf.recv(1 << 20)))
        guarded.tick()


def test_who_leaves_while_it_waits_makes_room(guarded):
    attacker = guarded.connect("attacker")
    guarded.ask(attacker, *[BAD] * 300)
    (connection,) = guarded.service.opened
    attacker.close()
    guarded.tick()
    while not guarded.service.closed:
        guarded.tick()
    assert guarded.service.closed == [connection]
    guarded.tick()
    guarded.tick()
    assert guarded.guard.due_ns() is None


def test_who_is_hung_up_on_while_it_waits_is_forgotten(guarded):
    attacker = guarded.connect("attacker")
    guarded.ask(attacker, *[BAD] * 300)
    guarded.service.opened[0].close()
    guarded.tick()
    guarded.tick()
    assert guarded.guard.due_ns() is None


def test_a_container_with_eight_devices_is_answered_eight_times_as_often(guarded):
    def answered_at_once():
        sock = guarded.connect(f"container with {guarded.service.devices}")
        before = guarded.counts.paused
        count = 0
        while guarded.counts.paused == before:
            count += guarded.ask(sock, GOOD)
        return count

    one = answered_at_once()
    guarded.service.devices = 8
    assert answered_at_once() == pytest.approx(8 * one, rel=0.01)
