"""/metrics, /healthz and /readyz of an operator program, in threads of their own: a probe must not wait for the event loop."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry, generate_latest

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.http_server import METRICS, Check, HttpServer, pages
from emulator_runtime.timing.host import monotonic_ns


def status_server(port: int, registry: CollectorRegistry, *, healthy: Check, ready: Check) -> HttpServer:
    """Answers from its `start` until its `close`; port 0 takes a free one. Raises ClusterError where the port is taken."""
    on_request = pages(lambda: (200, METRICS, generate_latest(registry)), healthy, ready, monotonic_ns)
    try:
        return HttpServer(port, on_request, monotonic_ns)
    except OSError as error:
        problem = f"port {port} for metrics can't be opened: {error.strerror}; choose another one"
        raise ClusterError(problem) from error


def loop_alive(loop: asyncio.AbstractEventLoop, within_s: float = 2.0) -> Check:
    """A check for /healthz: whether the event loop runs a task within this time. Host seconds."""

    async def alive() -> str:
        return ""

    def check() -> str:
        try:
            return asyncio.run_coroutine_threadsafe(alive(), loop).result(within_s)
        except TimeoutError:
            return f"the event loop did not answer within {within_s:g} s"

    return check
