"""The course of a comparison on a cluster: what is measured first, then each policy predicted and observed.

It can be begun with what an earlier one has found (`Kept`), and does only what is missing then. It prints nothing and writes
no file: whoever runs it is told what goes on (`Watch`), and after each step what there is (`changed`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

from operators.experiments.calibration.costs import as_submitted, warnings
from operators.experiments.cluster_state import Present
from operators.experiments.executor import GATHER_S, Laboratory, Setting
from operators.experiments.matching import match
from operators.experiments.run_namespace import limit_s
from operators.experiments.saved import Kept
from scheduler_sims.experiment import Experiment
from scheduler_sims.loop.scheduler_loop import Explain
from scheduler_sims.record import RunRecord
from scheduler_sims.reports.metrics import figures

KUBE_SCHEDULER = "default-scheduler"


class Stage(StrEnum):
    """What is done at the moment."""

    CALIBRATING = "Calibrating"
    PREDICTING = "Predicting"
    OBSERVING = "Observing"


class Line(Protocol):
    """Told how one step goes on."""

    @property
    def explain(self) -> Explain | None:
        """Who hears the policy's reasons."""
        ...

    def update(self, ended: int, now_s: float) -> None:
        """Jobs that have ended, and the seconds of the run."""
        ...

    def tell(self, text: str) -> None:
        """What is going on before the jobs run."""
        ...


class Watch(Protocol):
    """Told what is begun: `column` is a policy's title or a scheduler's name; empty while calibrating. `repeat` from 1 on."""

    def begin(self, stage: Stage, column: str, repeat: int) -> Line: ...


@dataclass(frozen=True, slots=True)
class Plans:
    """What is compared. `policies`: title by text; `pod_schedulers` are observed only. `calibrate`: else the cluster's costs.

    `derived`: the cluster is taken as it is; else it must be like that of the experiment, which `place` names. `where`: what an
    error calls the cluster that is there.
    """

    policies: Mapping[str, str]
    pod_schedulers: Sequence[str] = ()
    repeats: int = 1
    calibrate: bool = True
    derived: bool = False
    place: str = "--cluster"
    where: str = "--on kubernetes"

    @property
    def columns(self) -> int:
        return len(self.policies) + len(self.pod_schedulers)


class Comparison:
    """`prepare`, then `run`. `changed` is called whenever something was found out."""

    def __init__(
        self,
        plans: Plans,
        laboratory: Laboratory,
        watch: Watch,
        changed: Callable[[Comparison], None],
        kept: Kept | None = None,
    ) -> None:
        self.plans, self._laboratory, self._watch, self._changed = plans, laboratory, watch, changed
        found = kept or Kept()
        self.calibration = found.calibration
        self.runs: list[RunRecord] = list(found.runs)
        self._names: Mapping[str, str] = {}
        self._longest_s = 0.0
        self._experiment: Experiment | None = None

    @property
    def experiment(self) -> Experiment:
        """As it is run: on the cluster's nodes, with its costs. There is none before `prepare`."""
        assert self._experiment is not None
        return self._experiment

    def prepare(self, experiment: Experiment, present: Present) -> None:
        """Check that the cluster is the one of the file and idle, and measure what acting on it costs.

        Raises InputError where it can't be used, ClusterError where the probes don't come through.
        """
        plans, spec = self.plans, experiment.spec
        for by_kubernetes in (*([False] if plans.policies else []), *([True] if plans.pod_schedulers else [])):
            self._laboratory.check_jobs(experiment.workload.jobs, by_kubernetes=by_kubernetes)
        same = {node.name: node.name for node in spec.nodes}
        self._names = same if plans.derived else match(spec, present.spec, plans.place)
        present.check_idle(plans.where)
        costs = spec.costs
        if plans.calibrate:
            gather_s = max(costs.coalesce_s, GATHER_S)
            if self.calibration is None:
                line = self._watch.begin(Stage.CALIBRATING, "", 1)
                self.calibration = self._laboratory.calibrate(present.spec, gather_s, line.tell)
                line.update(len(experiment.workload.jobs), 0.0)
            costs = self.calibration.costs(gather_s)
        self._experiment = experiment.on(replace(present.spec, costs=costs))
        self._changed(self)

    def run(self) -> None:
        """All columns, one after the other. Raises what Laboratory.observe raises."""
        for policy, title in self.plans.policies.items():
            self._run_policy(policy, title)
        for name in self.plans.pod_schedulers:
            self._run_pod_scheduler(name)

    @property
    def done(self) -> int:
        """Columns that are complete."""
        columns = [*self.plans.policies.values(), *self.plans.pod_schedulers]
        return sum(all(self._has(c, r) for r in range(1, self.plans.repeats + 1)) for c in columns)

    def found(self) -> dict[str, Any]:
        """For the report's header: what is known beside the runs."""
        return {
            "experiment": self._laboratory.experiment,
            "calibration": "none: the costs are the cluster file's"
            if self.calibration is None
            else self.calibration.figures(),
            "nodes by name": self._names,
        }

    def _run_policy(self, policy: str, title: str) -> None:
        """Its prediction, then what is observed."""
        predicted = next((run for run in self.runs if (run.policy, run.repeat) == (title, 0)), None)
        if predicted is None:
            predicted = self._predict(policy, title)
            self.runs.append(predicted)
            self._changed(self)
        found = figures(predicted)
        self._longest_s = max(self._longest_s, found.makespan_s or 0.0)
        notes = warnings(self.calibration, found.mean_jct_s) if self.calibration is not None else []
        setting = Setting(title, (), limit_s(found.makespan_s or 0.0), policy, self.experiment.spec.costs.coalesce_s)
        self._observe_all(setting, notes)

    def _run_pod_scheduler(self, name: str) -> None:
        """A scheduler of pods is observed only: nobody can predict it."""
        self._observe_all(Setting(name, (), limit_s(self._longest_s), pod_scheduler=name), [])

    def _predict(self, policy: str, title: str) -> RunRecord:
        line = self._watch.begin(Stage.PREDICTING, title, 1)
        run = replace(self.experiment.simulate(policy, progress=line.update, explain=line.explain), policy=title)
        return run if self.calibration is None else as_submitted(run, self.calibration.arrive_s)

    def _observe_all(self, setting: Setting, notes: Sequence[str]) -> None:
        for repeat in range(1, self.plans.repeats + 1):
            if self._has(setting.title, repeat):
                continue
            line = self._watch.begin(Stage.OBSERVING, setting.title, repeat)
            own = replace(setting, jobs=self.experiment.workload.jobs, repeat=repeat)
            observed = self._laboratory.observe(own, self.experiment.spec, line.update)
            self.runs.append(replace(observed, notes=(*observed.notes, *notes)))
            self._changed(self)

    def _has(self, column: str, repeat: int) -> bool:
        return any((run.policy, run.repeat) == (column, repeat) for run in self.runs)
