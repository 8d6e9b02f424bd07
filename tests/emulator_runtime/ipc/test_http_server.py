"""The HTTP server of the programs: its pages, who may keep whom waiting, and that it rests while nobody asks."""

from __future__ import annotations

import http.client
import select
import selectors
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from emulator_runtime.ipc import http_server
from emulator_runtime.ipc.http_server import MAX_REQUESTS, SLOW_CLIENT_S, HttpServer, pages


def get(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str, str]:
    connection = http.client.HTTPConnection(host, port, timeout=5)
    try:
        connection.request("GET", path, headers={"Accept": "text/x"})
        reply = connection.getresponse()
        return reply.status, reply.headers["Content-Type"], reply.read().decode()
    finally:
        connection.close()


class Program:
    """What a program passes in."""

    problem = ""

    def ready(self) -> str:
        return self.problem

    def metrics(self, accept: str) -> tuple[str, bytes]:
        if self.problem == "broken":
            raise ZeroDivisionError
        return accept, b"things 1\n"


@pytest.fixture
def program() -> Program:
    return Program()


@pytest.fixture
def server(program: Program) -> Iterator[HttpServer]:
    server = HttpServer(0, pages(program.metrics, lambda: "", program.ready))
    server.start()
    yield server
    server.close()


def test_the_three_pages(server: HttpServer, program: Program) -> None:
    assert get(server.port, "/metrics") == (200, "text/x", "things 1\n")
    program.problem = "no inventory yet"
    assert get(server.port, "/readyz?verbose") == (503, http_server.TEXT, "no inventory yet\n")
    assert get(server.port, "/healthz") == (200, http_server.TEXT, "ok\n")
    assert get(server.port, "/x")[::2] == (404, "there are /metrics, /healthz and /readyz\n")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this host has no IPv6")
def test_a_probe_may_come_over_ipv6(server: HttpServer) -> None:
    assert get(server.port, "/healthz", "::1")[0] == 200


def test_a_loop_of_ones_own_answers_or_nobody_does(program: Program) -> None:
    server = HttpServer(0, pages(program.metrics, lambda: "", program.ready))
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


def test_silent_clients_do_not_keep_others_out(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert http_server._Handler.timeout == SLOW_CLIENT_S
    monkeypatch.setattr(http_server._Handler, "timeout", 0.3)
    before = threading.active_count()
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(MAX_REQUESTS)]
    time.sleep(0.1)
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):  # turned away, not left waiting
        get(server.port, "/healthz")
    assert threading.active_count() <= before + MAX_REQUESTS
    time.sleep(0.5)
    assert get(server.port, "/healthz")[0] == 200
    for sock in silent:
        sock.close()


def test_threads_that_cannot_start_use_up_no_room(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        for _ in range(MAX_REQUESTS + 1):
            with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
                get(server.port, "/healthz")
    assert "can't start new thread" in caplog.text
    assert get(server.port, "/healthz")[0] == 200


def test_it_rests_while_nobody_asks(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []

    class Counting(selectors.SelectSelector):
        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            turns.append(1)
            return super().select(timeout)

    monkeypatch.setattr(selectors, "DefaultSelector", Counting)
    server = HttpServer(0, pages(program.metrics, lambda: "", program.ready))
    server.start()
    time.sleep(0.6)
    assert len(turns) == 1
    server.close()


def test_no_name_is_looked_up(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(socket, "getfqdn", lambda *names: asked.append(names) or "here")
    server = HttpServer(0, pages(program.metrics, lambda: "", program.ready))
    server.start()
    assert get(server.port, "/healthz")[0] == 200
    server.close()
    assert asked == []


def test_close_is_prompt_gives_the_port_back_and_may_come_twice(program: Program) -> None:
    go_on = threading.Event()

    def slow() -> str:
        go_on.wait(10)
        return ""

    server = HttpServer(0, pages(program.metrics, slow, program.ready))
    server.start()
    seen: list[int] = []
    asking = threading.Thread(target=lambda: seen.append(get(server.port, "/healthz")[0]))
    port = server.port
    asking.start()
    time.sleep(0.1)
    server.close()
    server.close()
    HttpServer(port, pages(program.metrics, lambda: "", program.ready)).close()
    go_on.set()
    asking.join(5)
    assert seen == [200]


def test_a_port_that_is_taken_is_an_error(server: HttpServer, program: Program) -> None:
    with pytest.raises(OSError, match="Address already in use"):
        HttpServer(server.port, pages(program.metrics, lambda: "", program.ready))
