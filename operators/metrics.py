"""The metrics that every controller has. Names follow the Prometheus conventions: base units, _total for counters."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram


class ControllerMetrics:
    """One set, in a registry of its own unless there is one; names begin with emugpu_`name`.

    `reconciliation`: what one of them is, for the help.
    """

    def __init__(self, name: str, reconciliation: str, registry: CollectorRegistry | None = None) -> None:
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
