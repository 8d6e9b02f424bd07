"""Connections over TLS to an API server that is too busy to say farewell: none may outlive the event loop that made it."""

from __future__ import annotations

import asyncio
import gc
import ssl
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from operators.kube.api import NODE
from operators.kube.client import KubeApi
from operators.kube.kubeconfig import Connection


class BusyServer(threading.Thread):
    """An API server over TLS in a thread of its own, which answers nobody for a while after `rest`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self._key, self.certificate = folder / "key", folder / "certificate"
        self_signed = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
        ]
        names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", self._key, "-out", self.certificate]
        subprocess.run([*self_signed, *names], check=True, capture_output=True)
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._ready, self._over = threading.Event(), asyncio.Event()
        self.start()
        assert self._ready.wait(20)

    def run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self._key)
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._over.wait()
        server.close()
        await server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                if b"watch=1" in head:
                    writer.write(b"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n")
                    continue
                await asyncio.sleep(0.02)
                writer.write(b"HTTP/1.1 200 x\r\nContent-Length: 2\r\n\r\n{}")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()

    def rest(self, seconds: float) -> None:
        self._loop.call_soon_threadsafe(time.sleep, seconds)
        time.sleep(0.02)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self.join(20)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BusyServer]:
    server = BusyServer(tmp_path_factory.mktemp("server"))
    yield server
    server.stop()


async def get(api: KubeApi) -> None:
    await api.get(NODE, "w1")


async def watch(api: KubeApi) -> None:
    async for _ in api.watch(NODE, "1"):
        pass


@pytest.mark.parametrize(("ask", "after_s"), [(get, 0.0), (get, 0.008), (watch, 0.002), (watch, 0.1)])
def test_a_connection_whose_request_is_cancelled_ends_with_its_loop(
    ask: Callable[[KubeApi], Awaitable[None]], after_s: float, server: BusyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = {"server": f"https://127.0.0.1:{server.port}", "certificate-authority": str(server.certificate)}

    async def play() -> None:
        api = KubeApi(Connection("config", "c", cluster, {}))
        await api.get(NODE, "w1")
        tasks = [asyncio.ensure_future(ask(api)) for _ in range(3)]
        await asyncio.sleep(after_s)
        server.rest(0.2)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await api.close()

    left: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: left.append(found.exc_value))
    gc.collect()
    left.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        asyncio.run(play())
        gc.collect()
    assert left == []
