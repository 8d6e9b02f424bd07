"""The HTTP server of the programs: pages, isolation of clients from each other, and no load without requests."""

from __future__ import annotations

import contextlib
import http.client
import os
import resource
import select
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from emulator_runtime import http_server
from emulator_runtime.http_server import (
    MAX_HEAD_BYTES,
    MAX_REQUESTS,
    MAX_THREADS,
    METRICS,
    HttpServer,
    Reply,
    Request,
    pages,
)
from emulator_runtime.timing.host import monotonic_ns

NS = 1_000_000_000
LOCAL = "127.0.0.1"


def get(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str, str]:
    connection = http.client.HTTPConnection(host, port, timeout=5)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.headers["Content-Type"], reply.read().decode()
    finally:
        connection.close()


class Program:
    """What a program passes in."""

    problem = ""
    written = 0
    takes_s = 0.0
    at_ns = 0

    def now_ns(self) -> int:
        return self.at_ns

    def ready(self) -> str:
        return self.problem

    def metrics(self) -> Reply:
        if self.problem == "broken":
            raise ZeroDivisionError
        self.written += 1
        time.sleep(self.takes_s)
        return 200, METRICS, b"things %d\n" % self.written

    def server(self, port: int = 0) -> HttpServer:
        return HttpServer(port, pages(self.metrics, lambda: "", self.ready, self.now_ns), monotonic_ns)


@pytest.fixture
def program() -> Program:
    return Program()


@pytest.fixture
def server(program: Program) -> Iterator[HttpServer]:
    server = program.server()
    server.start()
    yield server
    server.close()


def test_the_three_pages(server: HttpServer, program: Program) -> None:
    assert get(server.port, "/metrics") == (200, METRICS, "things 1\n")
    program.problem = "no inventory yet"
    assert get(server.port, "/readyz?verbose") == (503, http_server.TEXT, "no inventory yet\n")
    assert get(server.port, "/healthz") == (200, http_server.TEXT, "ok\n")
    assert get(server.port, "/x")[::2] == (404, "there are /metrics, /healthz and /readyz\n")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this host has no IPv6")
def test_a_probe_may_come_over_ipv6(server: HttpServer) -> None:
    assert get(server.port, "/healthz", "::1")[0] == 200


def test_a_loop_of_ones_own_answers_or_nobody_does(program: Program) -> None:
    server = program.server()
    seen: list[int] = []
    asking = threading.Thread(target=lambda: seen.append(get(server.port, "/healthz")[0]))
    asking.start()
    assert select.select([server], [], [], 5)[0]
    asking.join(0.1)
    assert seen == []
    server.answer()
    server.answer()  # nobody is there: returns at once
    asking.join(5)
    assert seen == [200]
    server.close()


def test_a_mistake_of_ours_is_logged_and_a_client_that_left_is_not(
    server: HttpServer, program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as leaving:
        leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
        leaving.sendall(b"GET /metrics")
    get(server.port, "/healthz")
    assert caplog.text == ""
    program.problem = "broken"
    with pytest.raises(http.client.RemoteDisconnected):
        get(server.port, "/metrics")
    assert "the answer to an HTTP request failed" in caplog.text and "ZeroDivisionError" in caplog.text


def connect(server: HttpServer, host: str = LOCAL) -> socket.socket:
    """A client at the loopback address `host` that sends nothing."""
    return socket.create_connection((LOCAL, server.port), 5, (host, 0))


def answering() -> int:
    """The number of threads that serve clients."""
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())


def eventually(check: Callable[[], bool], within_s: float = 30) -> bool:
    until_s = time.monotonic() + within_s
    while not check() and time.monotonic() < until_s:
        time.sleep(0.01)
    return check()


def hung_up(client: socket.socket, within_s: float) -> bool:
    client.settimeout(within_s)
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def test_a_request_has_one_deadline_for_all_of_it(
    server: HttpServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    in_time: Callable[..., bool],
) -> None:
    assert http_server.REQUEST_S == 5
    monkeypatch.setattr(http_server, "REQUEST_S", 0.4)
    began = time.monotonic()
    with connect(server) as dripping:
        while not hung_up(dripping, 0.05):  # a byte each time
            dripping.sendall(b"G")
            assert in_time(most_s=3, since_s=began)
    assert time.monotonic() - began > 0.3
    began = time.monotonic()
    with connect(server) as late:
        time.sleep(0.3)
        late.sendall(b"G")
        assert hung_up(late, 20)
        assert in_time(most_s=0.6, since_s=began)
    assert caplog.text == ""


def test_an_answer_that_nobody_takes_has_the_same_deadline(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "REQUEST_S", 0.4)
    server = HttpServer(0, lambda path: (200, METRICS, bytes(30_000_000)), monotonic_ns)
    assert eventually(lambda: answering() == 0)
    server.start()
    with connect(server) as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert eventually(lambda: answering() == 1)
        assert eventually(lambda: answering() == 0)
    server.close()


def test_an_answer_that_comes_too_late_is_not_sent(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_server, "REQUEST_S", 0.1)
    server._server.on_request = lambda _request: time.sleep(0.2) or (200, METRICS, b"late")
    with pytest.raises(http.client.RemoteDisconnected):
        get(server.port, "/healthz")
    assert caplog.text == ""


def test_a_request_that_does_not_end_is_not_answered(server: HttpServer) -> None:
    with connect(server) as endless:
        endless.sendall(b"GET /healthz HTTP/1.0\r\nX: " + b"x" * MAX_HEAD_BYTES)
        assert hung_up(endless, 2)
    with connect(server) as cut_off:
        cut_off.sendall(b"GET /healthz HTTP/1.0\r\n")
        cut_off.shutdown(socket.SHUT_WR)
        assert hung_up(cut_off, 2)


def test_in_a_full_room_the_oldest_is_hung_up_on(server: HttpServer) -> None:
    assert eventually(lambda: answering() == 0)
    silent = [connect(server) for _ in range(MAX_REQUESTS)]
    assert eventually(lambda: answering() == MAX_REQUESTS)
    assert not hung_up(silent[0], 0.1)
    assert get(server.port, "/healthz")[0] == 200
    assert hung_up(silent[0], 2)
    assert not hung_up(silent[1], 0.1)
    assert eventually(lambda: answering() == len(server._server.room._clients) == MAX_REQUESTS - 1)
    for client in silent:
        client.close()
    assert eventually(lambda: answering() == len(server._server.room._clients) == 0)


def test_a_flood_drives_out_itself_and_no_probe(server: HttpServer) -> None:
    probe = connect(server)
    flood = [connect(server, "127.0.0.2") for _ in range(3 * MAX_REQUESTS)]
    probe.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
    probe.settimeout(5)
    assert probe.recv(4096).startswith(b"HTTP/1.0 200")
    for client in (probe, *flood):
        client.close()


class Hanging:
    """A handler that doesn't answer until `go_on`."""

    def __init__(self) -> None:
        self.go_on, self.asked = threading.Event(), threading.Semaphore(0)

    def on_get(self, _request: Request) -> Reply:
        self.asked.release()
        self.go_on.wait(10)
        return 200, METRICS, b"served"

    def full(self, server: HttpServer, host: str) -> list[socket.socket]:
        """The clients, all of them being served."""
        busy = [connect(server, host) for _ in range(MAX_REQUESTS)]
        for client in busy:
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert self.asked.acquire(timeout=5)
        return busy


def test_who_is_served_gives_way_to_another_host_only(server: HttpServer) -> None:
    hanging = Hanging()
    server._server.on_request = hanging.on_get
    busy = hanging.full(server, "127.0.0.2")
    with connect(server, "127.0.0.2") as same_host:
        assert hung_up(same_host, 2)
    assert not any(hung_up(client, 0.01) for client in busy)
    with connect(server, "127.0.0.3") as silent, connect(server) as probe:
        assert hung_up(busy[0], 2) and hung_up(busy[1], 2)
        assert not hung_up(silent, 0.1)
        probe.sendall(b"GET / HTTP/1.0\r\n\r\n")
        hanging.go_on.set()
        assert probe.recv(4096).startswith(b"HTTP/1.0 200")
    for client in busy:
        client.close()


def test_no_more_threads_than_are_allowed(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MAX_THREADS", MAX_REQUESTS + 1)
    hanging = Hanging()
    server = HttpServer(0, hanging.on_get, monotonic_ns)
    server.start()
    busy = hanging.full(server, "127.0.0.2")
    with connect(server) as last, connect(server) as too_many:
        assert hung_up(too_many, 2)  # the thread of the one that gave way to `last` is still at work
        assert not hung_up(last, 0.1)
    hanging.go_on.set()
    for client in busy[2:]:
        client.recv(4096)
    assert get(server.port, "/")[0] == 200
    server.close()
    for client in busy:
        client.close()


def test_the_metrics_are_written_once_a_second_at_most(server: HttpServer, program: Program) -> None:
    program.takes_s = 0.1
    with ThreadPoolExecutor(8) as asking:
        texts = [*asking.map(lambda _: get(server.port, "/metrics")[2], range(24))]
    assert texts == ["things 1\n"] * 24
    program.at_ns = NS - 1
    assert get(server.port, "/metrics")[2] == "things 1\n"
    program.at_ns = NS
    assert get(server.port, "/metrics")[2] == "things 2\n"


def test_a_mistake_in_the_metrics_is_not_kept(server: HttpServer, program: Program) -> None:
    program.problem = "broken"
    with pytest.raises(http.client.RemoteDisconnected):
        get(server.port, "/metrics")
    program.problem = ""
    assert get(server.port, "/metrics")[2] == "things 1\n"


def test_a_training_container_does_not_load_it() -> None:
    code = "import sys, emulator_runtime.workloads.__main__, emulator_runtime.ipc.client; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"emulator_runtime.http_server", "http.server"} & set(done.stdout.split())


def test_threads_that_cannot_start_use_up_no_room(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        for _ in range(MAX_THREADS + 1):
            with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
                get(server.port, "/healthz")
    assert "can't start new thread" in caplog.text
    assert not server._server.room._clients
    assert get(server.port, "/healthz")[0] == 200


def test_it_rests_while_nobody_asks(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []

    class Counting(selectors.SelectSelector):
        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            turns.append(1)
            return super().select(timeout)

    monkeypatch.setattr(selectors, "DefaultSelector", Counting)
    server = program.server()
    server.start()
    time.sleep(0.6)
    assert len(turns) == 1
    server.close()


def test_no_name_is_looked_up(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(socket, "getfqdn", lambda *names: asked.append(names) or "here")
    server = program.server()
    server.start()
    assert get(server.port, "/healthz")[0] == 200
    server.close()
    assert asked == []


def test_close_is_prompt_gives_the_port_back_and_may_come_twice(program: Program) -> None:
    go_on, came = threading.Event(), threading.Event()

    def slow() -> str:
        came.set()
        go_on.wait(20)
        return ""

    server = HttpServer(0, pages(program.metrics, slow, program.ready, program.now_ns), monotonic_ns)
    server.start()
    seen: list[int] = []
    asking = threading.Thread(target=lambda: seen.append(get(server.port, "/healthz")[0]))
    port = server.port
    asking.start()
    assert came.wait(20)
    server.close()
    server.close()
    program.server(port).close()
    go_on.set()
    asking.join(5)
    assert seen == [200]


def test_a_port_that_is_taken_is_an_error(server: HttpServer, program: Program) -> None:
    with pytest.raises(OSError, match="Address already in use"):
        program.server(server.port)


@contextlib.contextmanager
def no_descriptors(most: int = 200) -> Iterator[None]:
    """Within it, this process can open no file and accept no connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, most), hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_descriptors_it_backs_off_says_so_once_and_answers_later(
    server: HttpServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []
    accept = server._server.socket.accept

    class Counted:
        """The listener, with a count of the connections that it was asked for."""

        def accept(self) -> tuple[socket.socket, object]:
            attempts.append(1)
            return accept()

        def __getattr__(self, name: str) -> object:
            return getattr(listener, name)

    listener = server._server.socket
    monkeypatch.setattr(server._server, "socket", Counted())
    with socket.socket() as client:
        client.settimeout(20)
        with no_descriptors():
            client.connect((LOCAL, server.port))
            client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            time.sleep(0.55)
        assert client.recv(4096).startswith(b"HTTP/1.0 200")
    assert 1 < len(attempts) < 10
    assert caplog.text.count("can't accept a connection (Too many open files)") == 1
    assert "ulimit -n" in caplog.text and caplog.text.count("accepts connections again") == 1
    caplog.clear()
    assert get(server.port, "/healthz")[0] == 200
    assert caplog.text == ""


def test_without_descriptors_it_can_still_be_closed_at_once(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch, in_time: Callable[..., bool]
) -> None:
    monkeypatch.setattr(http_server, "ACCEPT_AGAIN_S", 60)
    with socket.socket() as client, no_descriptors():
        client.connect((LOCAL, server.port))
        assert eventually(lambda: not server._server._accepts)
        began_s = time.monotonic()
        server.close()
        assert in_time(most_s=5, since_s=began_s)
