"""The controller of SchedulingExperiments: follows experiments, their runners and the namespaces of their runs.

There are few experiments, and which one may run depends on all of them, so all are reconciled together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prometheus_client import CollectorRegistry, Gauge

from operators.controllers.actions import Plan
from operators.controllers.loop import ControllerLoop, Reconciler
from operators.controllers.metrics import ControllerMetrics, PhaseMetric
from operators.controllers.writer import Author, exactly
from operators.experiments.controller.objects import RunNamespace, RunnerJob, run_namespace_of, runner_job_of
from operators.experiments.controller.plan import (
    Action,
    CreateRunner,
    DeleteExperiment,
    DeleteRunNamespace,
    OwnAction,
    SetFinalizer,
    number_before,
    orphans,
    plan,
    turn,
    wants_to_run,
)
from operators.experiments.controller.runner_job import RunnerSettings
from operators.experiments.controller.status import Observed
from operators.experiments.run_namespace import request_deletion
from operators.kube.api import EXPERIMENT, JOB, NAMESPACE, Api, Json
from operators.kube.documents import object_at, objects_in, text_at
from operators.kube.informer import Followed, Pauses
from operators.kube.store import Store
from operators.objects.experiment import Experiment
from operators.objects.names import EXPERIMENT_PHASES, EXPERIMENT_UID_LABEL

FIELD_MANAGER = "emugpu-experiments"
"""The controller owns fields under this name (Kubernetes API concepts, server-side apply)."""
AUTHOR = Author(FIELD_MANAGER, EXPERIMENT, "SchedulingExperiment", "experiments")
_ALL = "all"
"""The only key of the queue."""
_LONGEST_WAIT_S = 60.0


class ExperimentMetrics(ControllerMetrics):
    """Metrics of every controller, experiments by phase, and the errors of their predictions."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__("experiments", "one reconciliation of all SchedulingExperiments", registry)
        self.phases = PhaseMetric(
            "emugpu_experiments", "SchedulingExperiments", ("Pending", *EXPERIMENT_PHASES), registry
        )
        self._errors = Gauge(
            "emugpu_experiment_prediction_error_ratio",
            "(predicted - observed) / observed of a policy in an existing SchedulingExperiment, by figure",
            ["namespace", "experiment", "policy", "figure"],
            registry=registry,
        )

    def export_errors(self, experiments: Iterable[Experiment]) -> None:
        """Those of all experiments that exist."""
        self._errors.clear()
        for experiment in experiments:
            for column in objects_in(experiment.status_json, "results"):
                for figure, text in object_at(column, "errors").items():
                    labels = (experiment.key.namespace, experiment.key.name, text_at(column, "name"), figure)
                    self._errors.labels(*labels).set(float(text))


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The settings of runners, the wall clock, and whether the controller may act now."""

    settings: RunnerSettings
    wall_ns: Callable[[], int]
    may_act: Callable[[], bool] = lambda: True


class Controller:
    """`run` never ends by itself; it is cancelled."""

    def __init__(
        self, api: Api, metrics: ExperimentMetrics, dependencies: Dependencies, pauses: Pauses | None = None
    ) -> None:
        self._metrics, self._dependencies = metrics, dependencies
        self._loop: ControllerLoop[OwnAction] = ControllerLoop(
            api, metrics, dependencies.wall_ns, may_act=dependencies.may_act, pauses=pauses
        )
        self._experiments: Store[Experiment] = Store(Experiment.read, self._count)
        self._runners: Store[RunnerJob] = Store(runner_job_of)
        self._namespaces: Store[RunNamespace] = Store(run_namespace_of)
        self._previous: dict[str, Mapping[str, Any]] = {}
        """Statuses at the last reconciliation, by uid."""

    @property
    def problem(self) -> str:
        """Why experiments may not go on; empty: they do."""
        return self._loop.problem

    async def run(self) -> None:
        """Raises LeadershipLostError (in a group) when it may not act any more."""
        runners = {"labels": EXPERIMENT_UID_LABEL, "namespace": self._dependencies.settings.namespace}
        await self._loop.run(
            Reconciler(
                author=AUTHOR,
                followed=(
                    Followed(EXPERIMENT, self._experiments),
                    Followed(JOB, self._runners, runners),
                    Followed(NAMESPACE, self._namespaces, {"labels": EXPERIMENT_UID_LABEL}),
                ),
                reconcile=self._reconcile,
                write=write,
                changed=lambda: self._loop.add(_ALL),
            )
        )

    def _reconcile(self, _key: str) -> Sequence[Plan[Action]]:
        experiments = self._experiments.values()
        self._metrics.export_errors(experiments)
        runners = {runner.owner: runner for runner in self._runners.values()}
        of_runs = [namespace for namespace in self._namespaces.values() if namespace.owner]
        namespaces: dict[str, list[RunNamespace]] = {}
        for namespace in of_runs:
            namespaces.setdefault(namespace.owner, []).append(namespace)
        ready = {experiment.key.uid for experiment in experiments if wants_to_run(experiment)}
        chosen = turn(experiments, runners, namespaces, ready)
        uids = [experiment.key.uid for experiment in experiments]
        removals = orphans(uids, self._runners.values(), of_runs)
        plans: list[Plan[Action]] = [Plan((removal,)) for removal in removals]
        for experiment in experiments:
            uid = experiment.key.uid
            observed = Observed(
                runner=runners.get(uid),
                namespaces=namespaces.get(uid, ()),
                turn=uid == chosen,
                before=number_before(experiment, experiments, ready),
                previous=self._previous.get(uid),
            )
            plans.append(plan(experiment, observed, self._dependencies.settings, self._dependencies.wall_ns()))
        self._previous = {experiment.key.uid: experiment.status_json for experiment in experiments}
        return [replace(each, again_s=min(_LONGEST_WAIT_S, each.again_s or _LONGEST_WAIT_S)) for each in plans]

    def _count(self, before: Experiment | None, after: Experiment | None) -> None:
        was, now = (experiment.phase if experiment is not None else None for experiment in (before, after))
        self._metrics.phases.moved(was, now)


async def write(api: Api, action: OwnAction) -> Json | None:
    """The object after the write; None after a deletion. Raises what Api raises."""
    match action:
        case SetFinalizer(key, finalizers):
            document = {"metadata": {**exactly(key), "finalizers": list(finalizers)}}
            return await api.patch(EXPERIMENT, key.name, document, FIELD_MANAGER)
        case CreateRunner(document):
            return await api.create(JOB, dict(document), FIELD_MANAGER)
        case DeleteRunNamespace(key):
            await request_deletion(api, key.name)
        case DeleteExperiment(key):
            await api.delete(EXPERIMENT, key.name, key.namespace, uid=key.uid)
    return None
