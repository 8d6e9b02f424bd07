"""The controller's metrics."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable

from prometheus_client import Gauge

from operators.metrics import ControllerMetrics

PHASES = ("Pending", "Queued", "Starting", "Running", "Preempted", "Succeeded", "Failed", "Rejected")


class JobMetrics(ControllerMetrics):
    """Those of a controller, and what there is of its objects."""

    def __init__(self) -> None:
        super().__init__("jobs", "one reconciliation of all EmuJobs")
        self.leading = Gauge("emugpu_jobs_leading", "1 while this replica holds the lease", registry=self.registry)
        self._phases = Gauge("emugpu_jobs", "EmuJobs by phase", ["phase"], registry=self.registry)

    def phases(self, phases: Iterable[str]) -> None:
        """Show how many EmuJobs are in each phase."""
        tally = Tally(phases)
        for phase in PHASES:
            self._phases.labels(phase).set(tally[phase])
