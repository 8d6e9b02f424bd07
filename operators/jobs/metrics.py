"""The controller's metrics. Names follow the Prometheus conventions: base units, _total for counters."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

PHASES = ("Pending", "Queued", "Starting", "Running", "Preempted", "Succeeded", "Failed", "Rejected")


class JobMetrics:
    """One set of metrics in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reconciles = Histogram(
            "emugpu_jobs_reconcile_seconds",
            "Time of one reconciliation of all EmuJobs, deciding and writing",
            registry=self.registry,
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
        )
        self.failures = Counter(
            "emugpu_jobs_failures", "Writes and watches that failed", ["doing"], registry=self.registry
        )
        self.writes = Counter("emugpu_jobs_writes", "Writes to the API server", ["kind"], registry=self.registry)
        self.leading = Gauge("emugpu_jobs_leading", "1 while this replica holds the lease", registry=self.registry)
        self._phases = Gauge("emugpu_jobs", "EmuJobs by phase", ["phase"], registry=self.registry)

    def phases(self, phases: Iterable[str]) -> None:
        """Show how many EmuJobs are in each phase."""
        tally = Tally(phases)
        for phase in PHASES:
            self._phases.labels(phase).set(tally[phase])
