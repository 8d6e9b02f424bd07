"""/metrics, /healthz and /readyz of a program of this package, in threads of their own: a probe must not wait for the work."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.ipc.http_server import Check, HttpServer, pages


def status_server(port: int, registry: CollectorRegistry, *, healthy: Check, ready: Check) -> HttpServer:
    """Answers from its `start` until its `close`; port 0 takes a free one. Raises ClusterError where the port is taken."""
    on_get = pages(lambda _accept: (CONTENT_TYPE_LATEST, generate_latest(registry)), healthy, ready)
    try:
        return HttpServer(port, on_get)
    except OSError as error:
        problem = f"port {port} for metrics can't be opened: {error.strerror}; choose another one"
        raise ClusterError(problem) from error
