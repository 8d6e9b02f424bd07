"""The course of a comparison on a cluster: calibration, then each policy predicted and observed.

It continues from saved results (`SavedComparison`) and does only what is missing. It prints nothing and writes no file: a
`ProgressReporter` gets what is being done, and `changed` is called after each step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

from emulator_runtime.domain.errors import InputError
from operators.experiments.calibration.calibration import as_submitted
from operators.experiments.calibration.probes import probe_jobs
from operators.experiments.cluster_state import ClusterState, match
from operators.experiments.executor import GATHER_S, Executor, RunRequest, StepReporter, limit_s
from operators.experiments.saved import SavedComparison
from scheduler_sims.experiment import Experiment
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.record import RunRecord
from scheduler_sims.reports.metrics import figures


class Stage(StrEnum):
    """What a step does."""

    CALIBRATING = "Calibrating"
    PREDICTING = "Predicting"
    OBSERVING = "Observing"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a comparison. `column`: the policy's title or the pod scheduler's name, empty while calibrating.

    `repeat` counts from 1. `jobs`: how many jobs the step runs.
    """

    stage: Stage
    column: str
    repeat: int
    jobs: int


class ProgressReporter(Protocol):
    """Gets each step before it is done."""

    def begin(self, step: Step) -> StepReporter: ...


@dataclass(frozen=True, slots=True)
class ComparisonPlan:
    """What is compared. `policies`: from the value of --policy to its title. `pod_schedulers` aren't predicted.

    `calibrate` false: the costs are those of the cluster file. `derived`: there is no cluster file, the nodes are those of the
    pools. Otherwise the real cluster must be like that of the file. Errors name the file by `place`, the cluster by `where`.
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
    """Call `prepare`, then `run`. `changed` is called whenever there is a new result."""

    def __init__(
        self,
        plan: ComparisonPlan,
        executor: Executor,
        reporter: ProgressReporter,
        changed: Callable[[Comparison], None],
        saved: SavedComparison | None = None,
    ) -> None:
        self.plan, self._executor, self._reporter, self._changed = plan, executor, reporter, changed
        before = saved or SavedComparison()
        self.calibration = before.calibration
        self.runs: list[RunRecord] = list(before.runs)
        self._names: Mapping[str, str] = {}
        self._max_makespan_s = 0.0
        self._experiment: Experiment | None = None

    @property
    def experiment(self) -> Experiment:
        """As it is run: on the cluster's nodes, with its costs. Only after `prepare`."""
        assert self._experiment is not None
        return self._experiment

    def prepare(self, experiment: Experiment, state: ClusterState) -> None:
        """Check that the workload can run on this cluster and that the cluster is idle; then calibrate.

        Raises InputError where it can't be used, ClusterError where the calibration fails.
        """
        plan, spec = self.plan, experiment.spec
        if spec.failures is not None:
            raise InputError(
                f"{plan.place}: failures", "nodes fail in the simulator only (`emugpu simulate`); leave it out"
            )
        for by_kubernetes in (*([False] if plan.policies else []), *([True] if plan.pod_schedulers else [])):
            self._executor.check_jobs(experiment.workload.jobs, by_kubernetes=by_kubernetes)
        same = {node.name: node.name for node in spec.nodes}
        self._names = same if plan.derived else match(spec, state.spec, plan.place)
        state.check_idle(plan.where)
        costs = self._measured(experiment, state) if plan.calibrate else spec.costs
        self._experiment = experiment.on(replace(state.spec, costs=costs))
        self._changed(self)

    def _measured(self, experiment: Experiment, state: ClusterState) -> ClusterCosts:
        gather_s = max(experiment.spec.costs.coalesce_s, GATHER_S)
        if self.calibration is None:
            programs = (job.program for job in experiment.workload.jobs if job.program is not None)
            probes = probe_jobs(state.spec, next((program.image for program in programs if program.image), ""))
            jobs = sum(len(probe.jobs) for probe in probes.values())
            reporter = self._reporter.begin(Step(Stage.CALIBRATING, "", 1, jobs))
            self.calibration = self._executor.calibrate(probes, gather_s, reporter)
        return self.calibration.costs(gather_s)

    def run(self) -> None:
        """All columns, one after the other. Raises what Executor.observe raises."""
        for policy, title in self.plan.policies.items():
            self._run_policy(policy, title)
        for name in self.plan.pod_schedulers:
            self._observe_all(RunRequest(name, (), limit_s(self._max_makespan_s), pod_scheduler=name), [])

    @property
    def done(self) -> int:
        """How many columns are complete."""
        columns = [*self.plan.policies.values(), *self.plan.pod_schedulers]
        return sum(all(self._has(c, r) for r in range(1, self.plan.repeats + 1)) for c in columns)

    def meta(self) -> dict[str, Any]:
        """For the report's header: what is known beside the runs."""
        measured = (
            self.calibration.figures() if self.calibration is not None else "none: the costs are the cluster file's"
        )
        return {"experiment": self._executor.experiment, "calibration": measured, "nodes by name": self._names}

    def _run_policy(self, policy: str, title: str) -> None:
        predicted = next((run for run in self.runs if (run.policy, run.repeat) == (title, 0)), None)
        if predicted is None:
            predicted = self._predict(policy, title)
            self.runs.append(predicted)
            self._changed(self)
        summary = figures(predicted)
        makespan_s = summary.makespan_s or 0.0
        self._max_makespan_s = max(self._max_makespan_s, makespan_s)
        notes = self.calibration.warnings(summary.mean_jct_s) if self.calibration is not None else []
        jcts_s = {job.job_id: job.jct_s for job in predicted.jobs if job.status == "finished"}
        gather_s = self.experiment.spec.costs.coalesce_s
        self._observe_all(RunRequest(title, (), limit_s(makespan_s), policy, gather_s, predicted=jcts_s), notes)

    def _predict(self, policy: str, title: str) -> RunRecord:
        reporter = self._reporter.begin(self._step(Stage.PREDICTING, title, 1))
        simulated = self.experiment.simulate(policy, progress=reporter.update, explain=reporter.explain)
        run = replace(simulated, policy=title)
        return run if self.calibration is None else as_submitted(run, self.calibration.seconds["arrive_s"])

    def _observe_all(self, request: RunRequest, notes: Sequence[str]) -> None:
        for repeat in range(1, self.plan.repeats + 1):
            if self._has(request.title, repeat):
                continue
            reporter = self._reporter.begin(self._step(Stage.OBSERVING, request.title, repeat))
            own = replace(request, jobs=self.experiment.workload.jobs, repeat=repeat)
            observed = self._executor.observe(own, self.experiment.spec, reporter.update)
            self.runs.append(replace(observed, notes=(*observed.notes, *notes)))
            self._changed(self)

    def _step(self, stage: Stage, column: str, repeat: int) -> Step:
        return Step(stage, column, repeat, len(self.experiment.workload.jobs))

    def _has(self, column: str, repeat: int) -> bool:
        return any((run.policy, run.repeat) == (column, repeat) for run in self.runs)
