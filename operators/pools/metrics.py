"""The controller's metrics. Names follow the Prometheus conventions: base units, _total for counters."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from operators.pools.actions import Action, PatchStatus

_NUMBERS = ("nodes", "devices", "allocatable", "unhealthy")


class PoolMetrics:
    """One set of metrics in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reconciles = Histogram(
            "emugpu_pools_reconcile_seconds",
            "Time of one reconciliation, deciding and writing",
            registry=self.registry,
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
        )
        self.failures = Counter(
            "emugpu_pools_failures", "Writes and watches that failed", ["doing"], registry=self.registry
        )
        self.writes = Counter("emugpu_pools_writes", "Writes to the API server", ["kind"], registry=self.registry)
        self._pools = {
            name: Gauge(f"emugpu_pool_{name}", f"status.{name} of the pool", ["pool"], registry=self.registry)
            for name in _NUMBERS
        }

    def wrote(self, action: Action) -> None:
        self.writes.labels(type(action).__name__).inc()
        if isinstance(action, PatchStatus):
            for name, gauge in self._pools.items():
                gauge.labels(action.name).set(action.status[name])

    def forget_all_but(self, pools: Iterable[str]) -> None:
        """Drop the numbers of pools that are gone."""
        kept = set(pools)
        for gauge in self._pools.values():
            for metric in list(gauge.collect()):
                for sample in metric.samples:
                    if sample.labels["pool"] not in kept:
                        gauge.remove(sample.labels["pool"])
