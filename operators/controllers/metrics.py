"""Metrics of every controller. Names follow the Prometheus conventions: base units, _total for counters."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from emulator_runtime.domain.errors import EmuGpuError


class ControllerMetrics:
    """Metrics whose names begin with emugpu_`name`, in a new registry unless one is given.

    `reconciliation`: what one reconciliation is, for the help texts.
    """

    def __init__(self, name: str, reconciliation: str, registry: CollectorRegistry | None = None) -> None:
        self._name = name
        self.registry = registry if registry is not None else CollectorRegistry()
        self.reconciles = Histogram(
            f"emugpu_{name}_reconcile_seconds",
            f"Time of {reconciliation}, deciding and writing",
            registry=self.registry,
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
        )
        self.failures = Counter(
            f"emugpu_{name}_failures", "Writes and watches that failed", ["doing"], registry=self.registry
        )
        self.writes = Counter(f"emugpu_{name}_writes", "Writes to the API server", ["kind"], registry=self.registry)

    def failed(self, doing: str, error: EmuGpuError, *, said: bool = False) -> None:
        """Count the failure, and log it unless `said`: it was logged before.

        `doing`: "watch", or the label of the action that failed.
        """
        self.failures.labels(doing).inc()
        if not said:
            print(f"{self._name}: {error}", file=sys.stderr, flush=True)

    def failed_watch(self, error: EmuGpuError) -> None:
        """A list or a watch failed; the informer retries it."""
        self.failed("watch", error)


class PhaseMetric:
    """The number of objects of one kind by phase; an object without a phase is Pending."""

    def __init__(self, name: str, kind: str, phases: Iterable[str], registry: CollectorRegistry) -> None:
        self._gauge = Gauge(name, f"{kind} by phase", ["phase"], registry=registry)
        for phase in phases:
            self._gauge.labels(phase).set(0)

    def moved(self, before: str | None, after: str | None) -> None:
        """An object went from one phase to another; None: it doesn't exist."""
        was, now = (phase if phase is None else phase or "Pending" for phase in (before, after))
        if was == now:
            return
        if was is not None:
            self._gauge.labels(was).dec()
        if now is not None:
            self._gauge.labels(now).inc()
