"""Serves /metrics, /healthz and /readyz on one port. The only file that imports the metrics library; used if a port is set."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.http_server import METRICS, HttpServer, pages
from emulator_runtime.timing.host import monotonic_ns

_FINE_S = (0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.25, 1.0)
"""Histogram buckets. An Allocate writes a few small files in a millisecond or two, and the pod's start waits for it."""


class PrometheusMetrics:
    """Metrics in a registry of their own, so that there can be several objects."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._allocate = Histogram(
            "emugpu_plugin_allocate_seconds",
            "Time from an Allocate call to its reply, including the write of the grant.",
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


class WebServer(HttpServer):
    """The daemon's main loop waits for `fileno` and calls `answer`, so /healthz doesn't answer if the main loop hangs."""

    def __init__(
        self, port: int, metrics: PrometheusMetrics, healthy: Callable[[], bool], ready: Callable[[], bool]
    ) -> None:
        """Raises InputError if the port can't be bound. `healthy` and `ready` are called in threads of their own."""
        on_request = pages(
            lambda: (200, METRICS, generate_latest(metrics.registry)),
            lambda: "" if healthy() else "not now",
            lambda: "" if ready() else "not now",
            monotonic_ns,
        )
        try:
            super().__init__(port, on_request, monotonic_ns)
        except OSError as error:
            problem = f"can't listen on port {port}: {error.strerror}; give another port, or 0 for none"
            raise InputError("EMUGPU_PLUGIN_METRICS_PORT", problem) from error
