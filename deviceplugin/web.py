"""/metrics, /healthz and /readyz on one port. The only file that loads the metrics library; loaded only where a port is set."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from emulator_runtime.domain.errors import InputError

_FINE_S = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.25, 1.0)
"""An Allocate is a few synced files, milliseconds; the kubelet makes the pod wait for it."""
_REQUEST_TIMEOUT_S = 5


class PrometheusMetrics:
    """Counts into a registry of its own, so that there can be two."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._allocate = Histogram(
            "emugpu_plugin_allocate_seconds",
            "Time from Allocate to its reply, grant on disk.",
            ["resource"],
            buckets=_FINE_S,
            registry=self.registry,
        )
        self._devices = Gauge(
            "emugpu_plugin_devices",
            "Device ids offered, replicas counted.",
            ["resource", "health"],
            registry=self.registry,
        )
        self._registrations = Counter(
            "emugpu_plugin_registrations",
            "Registrations that the kubelet accepted.",
            ["resource"],
            registry=self.registry,
        )
        self._errors = Counter("emugpu_plugin_errors", "Failures by kind.", ["kind"], registry=self.registry)

    def allocated(self, resource: str, duration_s: float) -> None:
        self._allocate.labels(resource).observe(duration_s)

    def devices(self, resource: str, healthy: int, unhealthy: int) -> None:
        self._devices.labels(resource, "healthy").set(healthy)
        self._devices.labels(resource, "unhealthy").set(unhealthy)

    def forget(self, resource: str) -> None:
        for health in ("healthy", "unhealthy"):
            self._devices.remove(resource, health)

    def registered(self, resource: str) -> None:
        self._registrations.labels(resource).inc()

    def error(self, kind: str) -> None:
        self._errors.labels(kind).inc()


class WebServer:
    """Listens from the start; whoever owns the main loop waits for `fileno` and calls `answer`, which starts a thread per
    connection. So a probe costs nothing while nobody asks, and /healthz is silent when the main loop is stuck. `healthy`
    and `ready` are called in those threads.
    """

    def __init__(
        self, port: int, metrics: PrometheusMetrics, healthy: Callable[[], bool], ready: Callable[[], bool]
    ) -> None:
        """Raises InputError where the port can't be had."""
        try:
            self._server = _Server(port, _handler(metrics.registry, {"/healthz": healthy, "/readyz": ready}))
        except OSError as error:
            problem = f"port {port} can't be had: {error.strerror}; give another, or 0 for none"
            raise InputError("EMUGPU_PLUGIN_METRICS_PORT", problem) from error

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def fileno(self) -> int:
        """Readable when somebody wants to connect."""
        return self._server.fileno()

    def answer(self) -> None:
        """Take one connection; returns at once where there is none after all."""
        self._server.handle_request()

    def close(self) -> None:
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """IPv4 and, where the host has it, IPv6: a probe may come over either."""

    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    daemon_threads = True
    block_on_close = False  # an answer under way doesn't keep the program
    timeout = 0

    def __init__(self, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("", port), handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def _handler(registry: CollectorRegistry, probes: Mapping[str, Callable[[], bool]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _REQUEST_TIMEOUT_S  # nobody keeps a thread by saying nothing

        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._reply(200, CONTENT_TYPE_LATEST, generate_latest(registry))
            elif self.path in probes:
                fine = probes[self.path]()
                self._reply(200 if fine else 503, "text/plain; charset=utf-8", b"ok\n" if fine else b"not now\n")
            else:
                self._reply(404, "text/plain; charset=utf-8", b"try /metrics, /healthz or /readyz\n")

        def log_message(self, format: str, *args: object) -> None:
            """Probes come every few seconds; they aren't news."""

        def _reply(self, status: int, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler
