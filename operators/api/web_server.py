"""Serves the application on a socket: start, serve, drain, stop. A first signal drains, a second one stops at once."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from emulator_runtime.domain.errors import ClusterError
from operators.api.connections import LimitedConnection

DRAIN_S = 2
"""Seconds from the signal until open connections are closed; event streams don't end by themselves."""


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens on `host` (empty: all addresses); port 0: any free port. Raises ClusterError if it can't."""
    host = host or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        found.bind((host, port))
        found.listen(256)
    except OSError as error:
        found.close()
        raise ClusterError(f"{host}, port {port}: can't listen there: {error.strerror}; choose another port") from error
    return found


class _Server(uvicorn.Server):
    """Signals are handled by `serve` below: uvicorn would raise them again when it ends."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(app: FastAPI, listener: socket.socket, started: Callable[[], None] = lambda: None) -> None:
    """Serves until a signal. Calls `started` when requests are answered. Raises ClusterError if the start fails."""
    config = uvicorn.Config(
        app,
        http=LimitedConnection,
        ws="none",  # a WebSocket would be a connection without these limits
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=DRAIN_S,
        limit_concurrency=1000,
        h11_max_incomplete_event_size=64 * 1024,
    )
    server, loop = _Server(config), asyncio.get_running_loop()

    def stop() -> None:
        server.force_exit, server.should_exit = server.should_exit, True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    serving = asyncio.create_task(server.serve([listener]))
    try:
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        if server.started:
            started()
        await serving
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    if not server.started:
        raise ClusterError("the dashboard could not be started; the reason is printed above")
