"""A blocking channel: whole messages in order, and one kind of error for every way in which the peer disappears."""

import contextlib
import socket
import threading

import pytest

from emulator_runtime.domain.errors import ManagerUnavailableError, ProtocolError
from emulator_runtime.ipc.channel import Channel
from emulator_runtime.ipc.frames import encode


@pytest.fixture
def pair():
    left, right = socket.socketpair()
    channel = Channel(left)
    yield channel, right
    channel.close()
    right.close()


def test_messages_that_came_together_are_received_one_by_one(pair):
    channel, other = pair
    other.sendall(encode({"n": 1}) + encode({"n": 2}) + encode({"n": 3})[:5])
    assert [channel.receive(), channel.receive()] == [{"n": 1}, {"n": 2}]
    other.sendall(encode({"n": 3})[5:])
    assert channel.receive() == {"n": 3}


def test_a_message_larger_than_the_socket_takes_at_once(pair):
    channel, other = pair
    thread = threading.Thread(target=channel.send, args=({"t": "x" * 250_000},))
    thread.start()
    receiver = Channel(other)
    assert len(receiver.receive()["t"]) == 250_000
    thread.join(5)


def test_who_hangs_up_with_a_word_is_heard(pair):
    channel, other = pair
    other.sendall(encode({"ok": False, "error": "too many"}))
    other.close()
    assert channel.request({"op": "query"}) == {"ok": False, "error": "too many"}
    with pytest.raises(ManagerUnavailableError, match="the connection broke while sending: Broken pipe"):
        channel.request({"op": "query"})


def test_who_takes_nothing_is_waited_for_once():
    """Data that was received earlier is not taken for the reply to a request that wasn't sent."""
    left, right = socket.socketpair()
    left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 10_000)
    left.settimeout(0.1)
    right.sendall(encode({"ok": True}))
    slow = pytest.raises(ManagerUnavailableError, match="while sending: timed out")
    with right, contextlib.closing(Channel(left)) as channel, slow:
        channel.request({"t": "x" * 250_000})


def test_the_end_of_the_stream(pair):
    channel, other = pair
    other.sendall(encode({"n": 1}) + b"\x00\x00")
    other.close()
    assert channel.receive() == {"n": 1}
    with pytest.raises(ManagerUnavailableError, match="the other side closed the connection"):
        channel.receive()
    with pytest.raises(ManagerUnavailableError, match="the connection broke while sending: Broken pipe"):
        channel.send({"n": 1})


def test_garbage(pair):
    channel, other = pair
    other.sendall(b"HTTP/1.1 400 Bad Request\r\n")
    with pytest.raises(ProtocolError, match="a frame of 1213486160 bytes"):
        channel.receive()


def test_nobody_listens(tmp_path):
    with pytest.raises(ManagerUnavailableError, match=rf"nobody answers at {tmp_path}/sock: No such file or directory"):
        Channel.connect(tmp_path / "sock")


def test_a_path_that_no_socket_can_have(tmp_path):
    with pytest.raises(ManagerUnavailableError, match="path too long"):
        Channel.connect(tmp_path / ("x" * 200))


def test_timeout(tmp_path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "sock"))
        listener.listen()
        channel = Channel.connect(tmp_path / "sock", 0.02)
        with pytest.raises(ManagerUnavailableError, match="timed out"):
            channel.request({"op": "x"})
        channel.close()


@pytest.fixture
def crowd(tmp_path):
    """A listener with room for one in its queue, and one in it."""
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind(str(tmp_path / "sock"))
        listener.listen(0)
        first.connect(str(tmp_path / "sock"))
        yield listener


def test_in_a_crowd_it_waits_for_its_turn(crowd, tmp_path):
    def accept_both():
        for _ in range(2):
            crowd.accept()[0].close()

    timer = threading.Timer(0.1, accept_both)
    timer.start()
    Channel.connect(tmp_path / "sock", 10.0).close()
    timer.join()


def test_in_a_crowd_it_waits_no_longer_than_it_may(crowd, tmp_path):
    with pytest.raises(ManagerUnavailableError, match=r"nobody answers at .*: Resource temporarily unavailable"):
        Channel.connect(tmp_path / "sock", 0.05)
