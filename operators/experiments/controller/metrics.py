"""The controller's metrics, in addition to those of its program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Gauge

from operators.controllers.metrics import ControllerMetrics
from operators.experiments.controller.objects import ExperimentFacts
from operators.kube.documents import object_at, objects_in, text_at

PHASES = ("Pending", "Queued", "Starting", "Running", "Suspended", "Succeeded", "Failed")


class ExperimentMetrics(ControllerMetrics):
    """The metrics of a controller, and of its objects."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__("experiments", "one reconciliation of all SchedulingExperiments", registry)
        self._phases = Gauge("emugpu_experiments", "SchedulingExperiments by phase", ["phase"], registry=registry)
        self._errors = Gauge(
            "emugpu_experiment_prediction_error_ratio",
            "(predicted - observed) / observed of a policy in an existing SchedulingExperiment, by figure",
            ["namespace", "experiment", "policy", "figure"],
            registry=registry,
        )

    def seen(self, experiments: Iterable[ExperimentFacts]) -> None:
        """Export phases and errors of all experiments."""
        there = list(experiments)
        counts = Counter(facts.phase or "Pending" for facts in there)
        for phase in PHASES:
            self._phases.labels(phase).set(counts[phase])
        self._errors.clear()
        for facts in there:
            for column in objects_in(facts.status, "results"):
                for figure, text in object_at(column, "errors").items():
                    labels = (facts.key.namespace, facts.key.name, text_at(column, "name"), figure)
                    self._errors.labels(*labels).set(float(text))
