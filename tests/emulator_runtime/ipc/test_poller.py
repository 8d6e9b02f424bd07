"""The event loop: no behaviour of a peer affects other peers."""

import contextlib
import os
import resource
import socket
import stat
import subprocess
import sys
import threading
import time

import pytest

from emulator_runtime.domain.errors import ClusterError, ManagerUnavailableError, RefusedError
from emulator_runtime.ipc import poller as poller_module
from emulator_runtime.ipc.channel import Channel
from emulator_runtime.ipc.frames import Decoder, encode
from emulator_runtime.ipc.poller import MAX_UNSENT_BYTES, TURN_MESSAGES, Peer, Poller


class Echo:
    """A server that answers each message with itself; `{"op": "close"}` is hung up on, `{"op": "no"}` refused."""

    def __init__(self, path):
        self.path = path
        self.poller = Poller()
        self.served = []
        self.connections = []
        self.closed = []
        self.poller.listen(path, self.on_message, self.closed.append)
        self.clients = []

    def on_message(self, connection, message):
        if connection not in self.connections:
            self.connections.append(connection)
        self.served.append(message)
        if message.get("op") == "close":
            connection.close()
        if message.get("op") == "no":
            raise RefusedError("not you")
        for _ in range(message.get("times", 1)):
            connection.send(message)

    def connect(self):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(str(self.path))
        self.clients.append(sock)
        return sock

    def turn(self):
        """Serve until nothing is in flight."""
        while self.poller.poll(0):
            pass

    def ask(self, sock, message):
        sock.sendall(encode(message))
        self.turn()
        return received(sock)[-1]


def received(sock):
    """The messages received so far, with None at the end if the server closed the connection."""
    sock.setblocking(False)
    decoder, messages = Decoder(), []
    with contextlib.suppress(BlockingIOError):
        while data := sock.recv(1 << 20):
            messages += decoder.feed(data)
        messages.append(None)
    sock.setblocking(True)
    assert decoder.pending_bytes == 0
    return messages


@pytest.fixture
def echo(tmp_path):
    server = Echo(tmp_path / "sock")
    yield server
    for sock in server.clients:
        sock.close()
    server.poller.close()


def test_nothing_in_flight_is_reported(echo):
    assert echo.poller.poll(0) == 0
    client = echo.connect()
    assert echo.poller.poll(0) == 1
    assert echo.poller.poll(0) == 0
    client.sendall(encode({"n": 1}))
    assert echo.poller.poll(0) == 1
    assert echo.poller.poll(0) == 0
    assert received(client) == [{"n": 1}]


def test_a_slow_reader_gets_everything_in_order(echo):
    slow = echo.connect()
    count = MAX_UNSENT_BYTES // 100_000 - 2
    for n in range(count):
        slow.sendall(encode({"n": n, "t": "x" * 100_000}))
        echo.turn()
    decoder, numbers = Decoder(), []
    while len(numbers) < count:
        numbers += [m["n"] for m in decoder.feed(slow.recv(7_001))]
        echo.poller.poll(0)
    assert numbers == list(range(count))
    assert echo.closed == []
    assert echo.poller.poll(0) == 0  # and the poller doesn't wake up for writing any more


def test_a_peer_that_never_reads_is_dropped_and_the_others_notice_nothing(echo):
    deaf, good = echo.connect(), echo.connect()
    request = encode({"times": 20, "t": "x" * 10_000})
    asked = 0
    while not echo.closed:
        asked += 1
        assert asked * 200_000 < 3 * MAX_UNSENT_BYTES, "it was never dropped"
        deaf.sendall(request)
        assert echo.ask(good, {"n": asked}) == {"n": asked}
    assert asked * 200_000 > MAX_UNSENT_BYTES
    assert len(echo.closed) == 1
    assert not echo.closed[0].open
    assert echo.ask(good, {"n": "after"}) == {"n": "after"}


def test_bytes_that_are_not_the_contract_cost_their_sender_the_connection(echo):
    bad, good = echo.connect(), echo.connect()
    bad.sendall(encode({"n": 1}))
    echo.turn()
    bad.sendall(b"GET / HTTP/1.1\r\n\r\n")
    echo.turn()
    first, error, end = received(bad)
    assert (first, end) == ({"n": 1}, None)
    assert error["code"] == "protocol"
    assert "a frame of 1195725856 bytes" in error["error"]
    assert echo.ask(good, {"n": 2}) == {"n": 2}
    assert len(echo.closed) == 1


def test_a_refusal_keeps_the_connection(echo):
    client = echo.connect()
    assert echo.ask(client, {"op": "no"}) == {"ok": False, "code": "refused", "error": "not you", "about": "no"}
    assert echo.ask(client, {"n": 1}) == {"n": 1}


def test_an_answer_that_is_too_long_is_an_error_reply(echo, monkeypatch):
    client = echo.connect()
    monkeypatch.setattr(echo, "served", [])
    connection_of = echo.on_message

    def too_much(connection, message):
        connection_of(connection, {"t": "x" * 300_000})

    echo.poller.stop_listening()
    echo.poller.listen(echo.path, too_much, echo.closed.append)
    client = echo.connect()
    assert echo.ask(client, {"n": 1})["code"] == "protocol"


def test_closing_in_the_callback_drops_what_came_behind(echo):
    client = echo.connect()
    client.sendall(encode({"n": 1}) + encode({"op": "close"}) + encode({"n": 2}))
    echo.turn()
    assert echo.served == [{"n": 1}, {"op": "close"}]
    assert received(client) == [{"n": 1}, None]
    assert len(echo.closed) == 1
    echo.closed[0].send({"n": 3})
    echo.closed[0].close()
    assert len(echo.closed) == 1


def test_closing_another_connection_that_is_ready_in_the_same_round(tmp_path):
    poller, connections, served, closed = Poller(), [], [], []

    def close_the_others(connection, message):
        served.append(message)
        for other in connections:
            if other is not connection:
                other.close()

    poller.listen(tmp_path / "sock", close_the_others, closed.append)
    clients = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    for client in clients:
        connections.append(poller.connect(tmp_path / "sock", close_the_others, closed.append))
        client.connect(str(tmp_path / "sock"))
    while poller.poll(0):
        pass
    for connection in connections:  # all three are readable when the next round begins: each side closes the other two
        connection.send({"from": "inside"})
    for client in clients:
        client.sendall(encode({"from": "outside"}))
    while poller.poll(0):
        pass
    assert len(closed) == len(set(closed))
    assert served
    for client in clients:
        client.close()
    poller.close()


def test_out_of_descriptors_turns_newcomers_away_and_does_not_spin(echo):
    served = echo.connect()
    echo.turn()
    waiting = [echo.connect() for _ in range(3)]
    filling = []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 200), hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                filling.append(os.open(os.devnull, os.O_RDONLY))
        for _ in waiting:
            assert echo.poller.poll(0) == 1
        assert echo.poller.poll(0) == 0
        assert echo.ask(served, {"n": 1}) == {"n": 1}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in filling:
            os.close(fd)
    assert [client.recv(1) for client in waiting] == [b"", b"", b""]
    assert echo.ask(echo.connect(), {"n": 2}) == {"n": 2}


def test_a_listener_that_can_neither_accept_nor_turn_away_pauses_and_recovers(echo, monkeypatch):
    """Another thread may take the descriptor that the poller frees to refuse a new connection."""
    served = echo.connect()
    echo.turn()
    attempts = []

    def robbed(sock):
        attempts.append(sock)
        return False

    newcomer = echo.connect()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    filling = []
    with monkeypatch.context() as patch:
        patch.setattr(echo.poller, "_turn_away", robbed)
        patch.setattr(poller_module, "ACCEPT_AGAIN_S", 0.05)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 200), hard))
        try:
            with contextlib.suppress(OSError):
                while True:
                    filling.append(os.open(os.devnull, os.O_RDONLY))
            assert echo.poller.poll(0) == 1
            assert echo.poller.poll(0) == 0
            assert echo.ask(served, {"n": 1}) == {"n": 1}
            while len(attempts) < 3:
                began_s = time.monotonic()
                echo.poller.poll(None)  # until the pause is over, then once more for the newcomer
                echo.poller.poll(None)
                assert time.monotonic() - began_s > 0.03
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for fd in filling:
                os.close(fd)
    echo.poller.poll(None)
    assert echo.ask(newcomer, {"n": 2}) == {"n": 2}


def test_a_flood_of_one_peer_does_not_keep_another_waiting(echo):
    flooding, other = echo.connect(), echo.connect()
    echo.turn()
    frame = encode({"f": 1})
    flooding.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            flooding.send(frame * 500)
    other.sendall(encode({"o": 1}))
    echo.poller.poll(0)
    assert {"o": 1} in echo.served
    assert len(echo.served) <= TURN_MESSAGES + 1
    for _ in range(20):  # and so it goes on, each with a turn per round
        before = len(echo.served)
        other.sendall(encode({"o": 2}))
        assert echo.poller.poll(0) > 0
        assert echo.served[before:].count({"o": 2}) == 1
        assert len(echo.served) - before <= TURN_MESSAGES + 1


def test_what_waits_for_its_turn_is_in_flight(echo):
    client = echo.connect()
    client.sendall(encode({"n": 1}) * (2 * TURN_MESSAGES + 1))
    assert echo.poller.poll(0) == 1  # the newcomer
    rounds = 0
    while echo.poller.poll(0):
        rounds += 1
        assert len(echo.served) == min(rounds * TURN_MESSAGES, 2 * TURN_MESSAGES + 1)
    assert rounds == 3
    assert len(received(client)) == 2 * TURN_MESSAGES + 1


def test_a_peer_that_is_hung_up_on_in_its_second_turn(echo):
    client = echo.connect()
    client.sendall(encode({"n": 1}) * TURN_MESSAGES + encode({"op": "close"}) + encode({"n": 2}) * 5)
    echo.turn()
    assert echo.served == [{"n": 1}] * TURN_MESSAGES + [{"op": "close"}]
    assert len(echo.closed) == 1


# --- other threads --------------------------------------------------------------------------------------------------


def test_what_another_thread_hands_over_runs_in_the_pollers_thread_and_wakes_it(echo):
    ran = []

    def hand_over():
        for number in range(1_000):
            echo.poller.call_soon(lambda n=number: ran.append((n, threading.get_ident())))

    thread = threading.Thread(target=hand_over)
    thread.start()
    while len(ran) < 1_000:
        assert echo.poller.poll(10) > 0
    thread.join()
    assert ran == [(number, threading.get_ident()) for number in range(1_000)]
    echo.turn()


def test_what_is_handed_over_in_the_pollers_own_thread_waits_for_the_next_round(echo):
    ran = []

    def again():
        ran.append(len(ran))
        if len(ran) < 3:
            echo.poller.call_soon(again)

    echo.poller.call_soon(again)
    for number in range(1, 4):
        assert echo.poller.poll(0) == 1
        assert len(ran) == number
    assert echo.poller.poll(0) == 0


def test_what_is_handed_over_raises_in_poll(echo):
    def broken():
        raise ZeroDivisionError

    echo.poller.call_soon(broken)
    with pytest.raises(ZeroDivisionError):
        echo.poller.poll(0)


def test_handing_over_to_a_closed_poller_is_nothing(echo):
    echo.poller.close()
    echo.poller.call_soon(lambda: pytest.fail("nobody polls"))


# --- a reply that comes later ---------------------------------------------------------------------------------------


def test_a_paused_peer_is_answered_later_and_in_order(echo):
    client, other = echo.connect(), echo.connect()
    echo.ask(client, {"n": 1})
    (connection,) = echo.connections
    connection.pause()
    client.sendall(encode({"n": 2}) + encode({"n": 3}))
    echo.turn()
    assert echo.ask(other, {"n": "other"}) == {"n": "other"}
    assert received(client) == []
    connection.resume()
    connection.resume()
    echo.turn()
    assert received(client) == [{"n": 2}, {"n": 3}]


def test_a_paused_peer_that_leaves_is_noticed(echo):
    client = echo.connect()
    echo.ask(client, {"n": 1})
    echo.connections[0].pause()
    client.close()
    echo.turn()
    assert echo.closed == echo.connections
    echo.connections[0].resume()
    echo.turn()


def test_a_held_peer_is_neither_read_nor_answered_until_it_is_released(echo):
    client = echo.connect()
    assert echo.ask(client, {"n": 1}) == {"n": 1}
    (connection,) = echo.connections
    connection.hold()
    connection.hold()
    client.sendall(encode({"n": 2}) + encode({"n": 3}))
    assert echo.poller.poll(0) == 0  # it doesn't even wake the poller
    assert received(client) == []
    connection.release()
    connection.release()
    echo.turn()
    assert received(client) == [{"n": 2}, {"n": 3}]


def test_what_a_held_peer_is_owed_is_sent(echo):
    client = echo.connect()
    client.sendall(encode({"times": 20, "t": "x" * 50_000}))
    echo.turn()
    (connection,) = echo.connections
    connection.hold()
    assert connection.unsent_bytes > 0
    decoder, count = Decoder(), 0
    while count < 20:
        count += len(decoder.feed(client.recv(1 << 20)))
        echo.turn()
    assert connection.unsent_bytes == 0
    client.sendall(encode({"n": 1}))
    assert echo.poller.poll(0) == 0


def test_a_peer_that_is_held_in_its_own_turn_keeps_the_rest_for_later(tmp_path):
    poller, served = Poller(), []

    def on_message(connection, message):
        served.append((connection, message["n"]))
        connection.hold()

    poller.listen(tmp_path / "sock", on_message, lambda _: None)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "sock"))
        client.sendall(b"".join(encode({"n": n}) for n in range(3)))
        for number in range(3):
            while poller.poll(0):
                pass
            assert [n for _, n in served] == list(range(number + 1))
            served[0][0].release()
    poller.close()


def test_a_hang_up_is_seen_before_it_is_read(echo):
    client = echo.connect()
    echo.ask(client, {})
    (connection,) = echo.connections
    assert not connection.peer_is_gone
    client.close()
    assert connection.peer_is_gone
    assert connection.open
    echo.turn()
    assert connection.peer_is_gone


def test_held_peers_are_hung_up_on_with_the_others(echo):
    client = echo.connect()
    echo.ask(client, {})
    echo.connections[0].hold()
    echo.poller.close()
    assert received(client) == [None]


def test_the_preferred_come_first(echo):
    clients = [echo.connect() for _ in range(8)]
    for number, client in enumerate(clients):
        echo.ask(client, {"n": number})
    for preferred in (7, 5):
        echo.connections[preferred].prefer()
    echo.served.clear()
    for number, client in enumerate(clients):
        client.sendall(encode({"n": number}))
    echo.turn()
    assert sorted(message["n"] for message in echo.served[:2]) == [5, 7]
    clients[7].close()
    echo.turn()
    assert len(echo.poller._preferred) == 1


def test_a_resting_listener_leaves_newcomers_in_its_queue(tmp_path):
    poller, opened = Poller(), []
    listener = poller.listen(tmp_path / "sock", lambda *_: None, lambda _: None, on_open=opened.append)
    with socket.socket(socket.AF_UNIX) as client:
        listener.rest()
        client.connect(str(tmp_path / "sock"))
        assert poller.poll(0) == 0
        listener.wake()
        poller.poll(0)
        assert len(opened) == 1
    poller.stop_listening()
    listener.wake()  # nothing
    assert poller.poll(0) == 1  # the client's end
    poller.close()


def test_who_is_not_admitted_costs_no_connection(tmp_path):
    poller, opened, asked = Poller(), [], []

    def admit(peer, door):
        asked.append((peer.pid, door))
        if len(asked) == 1:
            raise ManagerUnavailableError("come later")
        return "friend"

    listener = poller.listen(tmp_path / "sock", lambda *_: None, lambda _: None, on_open=opened.append, admit=admit)
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as other:
        for client in (one, other):
            client.connect(str(tmp_path / "sock"))
            poller.poll(0)
        assert received(one) == [{"ok": False, "code": "manager-unavailable", "error": "come later"}, None]
        assert [connection.group for connection in opened] == ["friend"]
        assert asked == [(os.getpid(), listener)] * 2
    poller.close()


def test_who_is_turned_away_and_gone_already_harms_nobody(tmp_path):
    def admit(peer, door):
        raise ManagerUnavailableError("come later")

    poller = Poller()
    poller.listen(tmp_path / "sock", lambda *_: None, lambda _: None, admit=admit)
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(tmp_path / "sock"))
    client.close()
    assert poller.poll(0) == 1
    poller.close()


def connected_by_a_child(echo):
    """A connection of ours that a process opened which has ended since."""
    sock = socket.socket(socket.AF_UNIX)
    echo.clients.append(sock)
    connect = "import socket, sys; socket.socket(fileno=int(sys.argv[1])).connect(sys.argv[2])"
    command = [sys.executable, "-c", connect, str(sock.fileno()), str(echo.path)]
    subprocess.run(command, pass_fds=[sock.fileno()], check=True, timeout=20)
    return sock


def test_a_connection_may_outlive_the_process_that_opened_it(echo):
    for sock in (connected_by_a_child(echo), echo.connect()):
        assert echo.ask(sock, {"n": 1}) == {"n": 1}
    childs, own = echo.connections
    if not peer_pidfd_known(own):
        pytest.skip("this kernel is older than 6.5: it has no SO_PEERPIDFD")
    assert (childs.connector_has_ended, own.connector_has_ended) == (True, False)
    own.close()
    assert own.connector_has_ended


def peer_pidfd_known(connection):
    try:
        os.close(connection._socket.getsockopt(socket.SOL_SOCKET, poller_module._SO_PEERPIDFD))
    except OSError:
        return False
    return True


def test_an_older_kernel_doesnt_tell_who_has_ended(echo, monkeypatch):
    monkeypatch.setattr(poller_module, "_SO_PEERPIDFD", 9999)
    echo.ask(connected_by_a_child(echo), {"n": 1})
    assert not echo.connections[0].connector_has_ended


def test_who_connected_is_known(echo):
    echo.ask(echo.connect(), {"n": 1})
    assert echo.connections[0].peer == Peer(os.getpid(), os.getuid(), os.getgid())


def test_a_newcomer_is_told_of_before_it_says_anything(tmp_path):
    poller, opened = Poller(), []
    poller.listen(tmp_path / "sock", lambda *_: None, lambda _: None, on_open=opened.append)
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(tmp_path / "sock"))
    poller.poll(0)
    assert len(opened) == 1
    client.close()
    poller.close()


def test_a_peer_that_leaves_in_the_middle_of_a_frame(echo):
    client = echo.connect()
    client.sendall(encode({"n": 1}) + encode({"n": 2})[:-1])
    client.close()
    echo.turn()
    assert echo.served == [{"n": 1}]
    assert len(echo.closed) == 1


def test_stop_listening_keeps_who_is_connected(echo):
    client = echo.connect()
    echo.turn()
    echo.poller.stop_listening()
    assert not echo.path.exists()
    with pytest.raises(ManagerUnavailableError, match="nobody answers"):
        Channel.connect(echo.path)
    assert echo.ask(client, {"n": 1}) == {"n": 1}


def test_close_hangs_up_on_all_peers_and_calls_nobody_back(echo):
    client = echo.connect()
    echo.ask(client, {"n": 1})
    echo.poller.close()
    assert received(client) == [None]
    assert echo.closed == []
    echo.connections[0].send({"n": 2})
    assert not echo.connections[0].open


def test_a_stale_socket_file_is_replaced_and_the_mode_is_set(tmp_path):
    path = tmp_path / "sock"
    path.write_text("stale")
    poller = Poller()
    poller.listen(path, lambda *_: None, lambda _: None, mode=0o600)
    assert stat.S_ISSOCK(path.stat().st_mode)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    poller.close()


def test_a_stale_directory_is_replaced_but_not_one_that_is_used(tmp_path):
    poller = Poller()
    (tmp_path / "sock").mkdir()
    poller.listen(tmp_path / "sock", lambda *_: None, lambda _: None)
    assert stat.S_ISSOCK((tmp_path / "sock").stat().st_mode)
    (tmp_path / "used" / "by").mkdir(parents=True)
    with pytest.raises(ClusterError, match=r"used: can't listen there \(Directory not empty\)"):
        poller.listen(tmp_path / "used", lambda *_: None, lambda _: None)
    poller.close()


@pytest.mark.parametrize("name", ["x" * 200, "missing/sock"])
def test_a_place_where_no_socket_can_be(tmp_path, name):
    poller = Poller()
    with pytest.raises(ClusterError, match=r"can't listen there \(.+\); choose a short path in a directory that"):
        poller.listen(tmp_path / name, lambda *_: None, lambda _: None)
    poller.close()


def test_connecting_from_a_poller(echo):
    answers = []
    connection = echo.poller.connect(echo.path, lambda _, m: answers.append(m), lambda _: answers.append(None))
    connection.send({"n": 1})
    echo.turn()
    connection.send({"op": "close"})
    echo.turn()
    assert answers == [{"n": 1}, None]
    with pytest.raises(ManagerUnavailableError, match="nobody answers at"):
        echo.poller.connect(echo.path.with_name("other"), lambda *_: None, lambda _: None)
