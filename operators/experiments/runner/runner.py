"""One attempt at an experiment: remove what the previous attempt left, continue from its results, save each new result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from emulator_runtime.domain.errors import InputError
from operators.experiments import run_namespace
from operators.experiments.cluster_state import read_cluster_state
from operators.experiments.comparison import Comparison, Step
from operators.experiments.controller.objects import run_namespace_of
from operators.experiments.executor import Executor, ExecutorSettings, StepReporter
from operators.experiments.runner.inputs import Inputs, Settings, load, read
from operators.experiments.runner.report import JOBS, SUMMARY, read_saved, save
from operators.experiments.runner.status_results import decimal, results_of
from operators.experiments.runner.status_writer import StatusWriter
from operators.experiments.saved import SavedComparison
from operators.kube.api import NAMESPACE, Api, selector_of
from operators.objects.names import EXPERIMENT_OWNER, EXPERIMENT_UID_LABEL
from scheduler_sims.experiment import Experiment
from scheduler_sims.interface.costs import SLOTS
from scheduler_sims.loop.strategies import Explain
from scheduler_sims.reports.comparison import compare
from scheduler_sims.reports.files import write_jobs_csv, write_summary

T = TypeVar("T")
NUMBERS = 1000
"""Maximum number of runs of one attempt: attempt 2 numbers its runs from 1001 on, so no namespace has a name twice."""


@dataclass(frozen=True, slots=True)
class RunnerDependencies:
    """What a runner uses. `directory`: its own working directory."""

    connect: Callable[[], Api]
    wall_ns: Callable[[], int]
    say: Callable[[str], None]
    directory: Path
    python: tuple[str, ...] = ()


class Runner:
    """Call `run` once."""

    def __init__(self, settings: Settings, dependencies: RunnerDependencies, writer: StatusWriter) -> None:
        self._settings, self._dependencies, self._writer = settings, dependencies, writer
        self._saved = SavedComparison()
        self._has_report = False
        self._inputs: Inputs | None = None

    def run(self) -> None:
        """Raises errors of the tree; the results until then are saved, and another attempt continues from them."""
        inputs = self._ask(lambda api: read(api, self._settings))
        before = self._ask(lambda api: read_saved(api, self._settings))
        self._inputs, self._has_report = inputs, before is not None
        attempt = (before.attempts if before is not None else 0) + 1
        self._writer.update(attempt=attempt, stage="Preparing")
        self._ask(lambda api: remove_leftovers(api, self._settings.uid, self._dependencies.wall_ns))
        state = self._ask(read_cluster_state)
        digest = inputs.digest(state)
        if before is not None and before.inputs and before.inputs != digest:
            problem = "the workload, or the cluster's nodes, differ from those of the previous attempt"
            raise InputError("the experiment", f"{problem}; delete it and create a new one")
        experiment, plan = load(inputs, state)
        self._saved = replace(before or SavedComparison(), inputs=digest, attempts=attempt)
        self._save({})
        jobs = len(experiment.workload.jobs)
        self._writer.update(jobs=jobs, nodes=len(state.spec.nodes), gpus=state.spec.gpus)
        executor = Executor(self._settings.id, self._executor_settings(inputs, experiment), NUMBERS * (attempt - 1) + 1)
        comparison = Comparison(plan, executor, _Reporter(self._writer), self._changed, self._saved)
        comparison.prepare(experiment, state)
        comparison.run()
        self._changed(comparison)
        self._writer.update(stage="Done", column="", repeat=0, ended=0)
        self._writer.flush()

    def _executor_settings(self, inputs: Inputs, experiment: Experiment) -> ExecutorSettings:
        settings, spec = self._settings, inputs.spec
        given = ExecutorSettings(
            api=self._dependencies.connect,
            wall_ns=self._dependencies.wall_ns,
            directory=self._dependencies.directory,
            say=self._dependencies.say,
            scheduler_options=("--estimates", spec.estimates, "--seed", str(spec.seed)),
            actuator=spec.actuator,
            labels={EXPERIMENT_UID_LABEL: settings.uid},
            annotations={EXPERIMENT_OWNER: f"{settings.namespace}/{settings.name}"},
            profiles=experiment.workload.profiles,
        )
        return replace(given, python=self._dependencies.python) if self._dependencies.python else given

    def _changed(self, comparison: Comparison) -> None:
        assert self._inputs is not None
        spec, clock = self._inputs.spec, "the cluster's own"
        place = "as its pools are" if spec.cluster is None else "spec.cluster"
        name = f"SchedulingExperiment {self._settings.namespace}/{self._settings.name}"
        meta = comparison.experiment.described(name, place, clock, spec.stretch) | comparison.meta()
        runs = tuple(comparison.runs)
        self._saved = replace(self._saved, calibration=comparison.calibration, runs=runs, meta=meta)
        files = self._files() if runs else {}
        report = self._save(files)
        found = results_of(runs, spec.pod_schedulers)
        measured = comparison.calibration.figures() if comparison.calibration is not None else {}
        named = {name: value for name, value in measured.items() if name.endswith("_s") or name in SLOTS}
        costs = {_camel(name): decimal(value) for name, value in named.items()}
        self._writer.update(
            done=comparison.done,
            results=found.columns,
            best=found.best,
            error=found.error,
            report=report if runs else {},
            calibration=costs,
        )

    def _files(self) -> dict[str, str]:
        comparison = compare(self._saved.runs)
        jobs, summary = (self._dependencies.directory / name for name in (JOBS.removesuffix(".gz"), SUMMARY))
        write_jobs_csv(jobs, self._saved.runs)
        write_summary(summary, comparison, self._saved.meta)
        return {path.name: path.read_text(encoding="utf-8") for path in (jobs, summary)}

    def _save(self, files: dict[str, str]) -> dict[str, Any]:
        first, self._has_report = not self._has_report, True
        return self._ask(lambda api: save(api, self._settings, self._saved, files, first=first))

    def _ask(self, question: Callable[[Api], Coroutine[Any, Any, T]]) -> T:
        async def ask() -> T:
            api = self._dependencies.connect()
            try:
                return await question(api)
            finally:
                await api.close()

        return asyncio.run(ask())


@dataclass(frozen=True, slots=True)
class _Reporter:
    """Writes each step of the comparison to the experiment's status."""

    writer: StatusWriter

    def begin(self, step: Step) -> StepReporter:
        self.writer.update(stage=str(step.stage), column=step.column, repeat=step.repeat, ended=0, jobs=step.jobs)
        return _StepReporter(self.writer, step.jobs)


@dataclass(frozen=True, slots=True)
class _StepReporter:
    writer: StatusWriter
    jobs: int
    explain: Explain | None = None

    def update(self, ended: int, _now_s: float) -> None:
        self.writer.update(ended=min(ended, self.jobs))

    def describe(self, _text: str) -> None:
        """The status shows how many probe jobs have ended, which is enough."""


async def remove_leftovers(api: Api, uid: str, wall_ns: Callable[[], int]) -> None:
    """Remove the namespaces of a runner that died, and wait: their jobs would run beside the next ones."""
    _, found = await api.list(NAMESPACE, labels=selector_of({EXPERIMENT_UID_LABEL: uid}))
    for namespace in map(run_namespace_of, found):
        if namespace.owner:
            await run_namespace.remove(api, namespace.key.name, wall_ns)


def _camel(name: str) -> str:
    """start_s -> startSeconds, host_slots -> hostSlots."""
    first, *others = name.removesuffix("_s").split("_")
    return first + "".join(word.capitalize() for word in others) + ("Seconds" if name.endswith("_s") else "")
