"""The controller's metrics, beside those of the program that it is in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Gauge

from operators.metrics import ControllerMetrics

PHASES = ("Pending", "Queued", "Starting", "Running", "Suspended", "Succeeded", "Failed")


class ExperimentMetrics(ControllerMetrics):
    """Those of a controller, and what there is of its objects."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__("experiments", "one look at all SchedulingExperiments", registry)
        self._phases = Gauge("emugpu_experiments", "SchedulingExperiments by phase", ["phase"], registry=registry)

    def seen(self, phases: Iterable[str]) -> None:
        """The phases of all that there are; empty: not looked at yet."""
        counts = Counter(phase or "Pending" for phase in phases)
        for phase in PHASES:
            self._phases.labels(phase).set(counts[phase])
