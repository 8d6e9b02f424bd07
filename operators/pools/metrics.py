"""The controller's metrics."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Gauge

from operators.controllers.metrics import ControllerMetrics
from operators.pools.actions import Action, PatchStatus

_NUMBERS = ("nodes", "devices", "allocatable", "unhealthy")


class PoolMetrics(ControllerMetrics):
    """Metrics of every controller, and the numbers of pools and nodes."""

    def __init__(self) -> None:
        super().__init__("pools", "one reconciliation")
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
        """Remove the numbers of pools that are gone."""
        kept = set(pools)
        for gauge in self._pools.values():
            for metric in list(gauge.collect()):
                for sample in metric.samples:
                    if sample.labels["pool"] not in kept:
                        gauge.remove(sample.labels["pool"])
