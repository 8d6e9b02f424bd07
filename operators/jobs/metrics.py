"""The controller's metrics."""

from __future__ import annotations

from prometheus_client import Gauge

from operators.controllers.metrics import ControllerMetrics
from operators.objects.names import PHASES


class JobMetrics(ControllerMetrics):
    """Metrics of every controller, and EmuJobs by phase."""

    def __init__(self) -> None:
        super().__init__("jobs", "one look at an EmuJob")
        self.leading = Gauge("emugpu_jobs_leading", "1 while this replica holds the lease", registry=self.registry)
        self._phases = Gauge("emugpu_jobs", "EmuJobs by phase", ["phase"], registry=self.registry)

        for phase in PHASES:
            self._phases.labels(phase).set(0)

    def moved(self, before: str, after: str) -> None:
        """An EmuJob went from one phase to another; empty: it didn't exist before, or doesn't any more."""
        if before:
            self._phases.labels(before).dec()
        if after:
            self._phases.labels(after).inc()
