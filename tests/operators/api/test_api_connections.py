"""Clients that keep their connection waiting: they are closed in time, and neither users nor probes notice them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from operators.api.connections import LimitedConnection
from operators.api.web_server import listening, serve

GET = b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"
NEVER_S = 3600.0


class Application:
    """Answers `ok`. /large: much more than socket buffers hold. /slow: `ok`, where the second letter waits for `go_on`."""

    def __init__(self) -> None:
        self.go_on, self.disconnected = asyncio.Event(), asyncio.Event()

    async def __call__(self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Any]) -> None:
        if scope["type"] != "http":
            return
        while (await receive()).get("more_body"):
            pass
        body = b"x" * 64_000_000 if scope["path"] == "/large" else b"ok"
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body[:1], "more_body": True})
        if scope["path"] == "/slow":
            await self.go_on.wait()
        await send({"type": "http.response.body", "body": body[1:], "more_body": True})
        if scope["path"] == "/large":
            await receive()
            self.disconnected.set()
        await send({"type": "http.response.body"})


class Client:
    """Connections to one server; `host` is the address from which they come."""

    def __init__(self, application: Application, port: int) -> None:
        self.application, self._port = application, port
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self, data: bytes = b"", host: str = "127.0.0.1") -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, local_addr=(host, 0), limit=1024)
        self._writers.append(writer)
        writer.write(data)
        return reader

    async def is_answered(self) -> bool:
        return (await (await self.connect(GET)).readuntil(b"ok")).startswith(b"HTTP/1.1 200")

    async def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)


@asynccontextmanager
async def serving() -> AsyncIterator[Client]:
    listener, started = listening("127.0.0.1", 0), asyncio.Event()
    application = Application()
    server = asyncio.create_task(serve(application, listener, started.set))  # type: ignore[arg-type]
    await started.wait()
    client = Client(application, listener.getsockname()[1])
    try:
        yield client
    finally:
        application.go_on.set()
        await client.close()
        if not server.cancelling():  # else nobody handles the signal any more, and it would end pytest
            signal.raise_signal(signal.SIGTERM)
        await asyncio.wait([server])


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, int], None]:
    def limit(client_s: float, most: int) -> None:
        monkeypatch.setattr(LimitedConnection, "client_s", client_s)
        monkeypatch.setattr(LimitedConnection, "most", most)

    return limit


@pytest.mark.parametrize("beginning", [b"", GET[:-2], b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{"])
def test_a_request_that_is_never_finished_is_closed(beginning: bytes, limits: Any) -> None:
    limits(0.05, 500)

    async def story() -> None:
        async with serving() as client:
            assert await (await client.connect(beginning)).read() == b""

    asyncio.run(story())


def test_a_client_that_does_not_read_its_answer_is_closed(limits: Any) -> None:
    limits(0.05, 500)

    async def story() -> None:
        async with serving() as client:
            await client.connect(GET.replace(b"/healthz", b"/large"))
            await client.application.disconnected.wait()

    asyncio.run(story())


def test_an_answer_may_take_longer_than_a_client(limits: Any) -> None:
    limits(0.05, 500)

    async def story() -> None:
        async with serving() as client:
            stream = await client.connect(GET.replace(b"/healthz", b"/slow"))
            await stream.readuntil(b"\r\n\r\no")
            assert await (await client.connect()).read() == b"", "its deadline was later than the stream's would be"
            client.application.go_on.set()
            assert await stream.readexactly(1) == b"k"

    asyncio.run(story())


class Transport(asyncio.Transport):
    """`unread`: bytes of the answer that the client has not read yet."""

    unread, aborted = 0, False

    def get_write_buffer_size(self) -> int:
        return self.unread

    def abort(self) -> None:
        self.aborted = True


def test_a_large_answer_may_take_longer_while_its_client_reads(limits: Any) -> None:
    limits(NEVER_S, 500)

    async def story() -> None:
        transport = Transport()
        connection = LimitedConnection(uvicorn.Config(Application()), ServerState(), {})
        connection.connection_made(transport)
        connection.cycle = SimpleNamespace(more_body=False, response_complete=False)  # type: ignore[assignment]
        connection.handle_events()
        transport.unread = 100
        connection.pause_writing()
        for transport.unread in (50, 1):
            connection._late()
            assert not transport.aborted
        connection._late()
        assert transport.aborted

    asyncio.run(story())


def test_idle_connections_keep_nobody_from_an_answer(limits: Any) -> None:
    limits(NEVER_S, 3)

    async def story() -> None:
        async with serving() as client:
            stream = await client.connect(GET.replace(b"/healthz", b"/slow"))
            await stream.readuntil(b"\r\n\r\no")
            idle = [await client.connect() for _ in range(5)]
            assert await client.is_answered()
            assert [await each.read() for each in idle[:3]] == [b""] * 3, "the oldest are closed"
            client.application.go_on.set()
            assert await stream.readexactly(1) == b"k", "requests that are being answered are not"

    asyncio.run(story())


def test_the_host_with_most_idle_connections_loses_them(limits: Any) -> None:
    limits(NEVER_S, 4)

    async def story() -> None:
        async with serving() as client:
            other = await client.connect(host="127.0.0.2")
            idle = [await client.connect() for _ in range(9)]
            assert [await each.read() for each in idle[:6]] == [b""] * 6
            assert await client.is_answered() and not other.at_eof()

    asyncio.run(story())
