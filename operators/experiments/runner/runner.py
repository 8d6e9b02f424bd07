"""One attempt at an experiment: clear up after the one before, go on with what it kept, and keep whatever is found."""

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
from operators.experiments.controller.names import OWNER, UID_LABEL
from operators.experiments.controller.progress import DONE
from operators.experiments.executor import Connection, Executor, ExecutorSettings, StepReporter
from operators.experiments.runner.inputs import Inputs, load, read
from operators.experiments.runner.report import JOBS, SUMMARY, keep, kept_before
from operators.experiments.runner.results import decimal, results_of
from operators.experiments.runner.settings import Settings
from operators.experiments.runner.status_writer import Teller
from operators.experiments.saved import SavedComparison
from operators.kube.api import NAMESPACE, Api, selector_of
from scheduler_sims.loop.strategies import Explain
from scheduler_sims.reports.comparison import compare
from scheduler_sims.reports.files import write_jobs_csv, write_summary

T = TypeVar("T")
NUMBERS = 1000
"""Runs of one attempt at most: so each has a number of its own, also in another attempt."""


@dataclass(frozen=True, slots=True)
class Means:
    """What a runner is given. `directory`: the working directory, which is its own."""

    connect: Callable[[], Connection]
    wall_ns: Callable[[], int]
    say: Callable[[str], None]
    directory: Path
    python: tuple[str, ...] = ()


class Runner:
    """`run` it once."""

    def __init__(self, settings: Settings, means: Means, teller: Teller) -> None:
        self._settings, self._means, self._teller = settings, means, teller
        self._kept = SavedComparison()
        self._is_there = False
        self._inputs: Inputs | None = None

    def run(self) -> None:
        """Raises errors of the tree; then what was found until now is kept, and another attempt goes on with it."""
        inputs = self._ask(lambda api: read(api, self._settings))
        before = self._ask(lambda api: kept_before(api, self._settings))
        self._inputs, self._is_there = inputs, before is not None
        attempt = (before.attempts if before is not None else 0) + 1
        self._teller.tell(attempt=attempt, stage="Preparing")
        self._ask(lambda api: clear_remains(api, self._settings.uid, self._means.wall_ns))
        state = self._ask(read_cluster_state)
        digest = inputs.digest(state)
        if before is not None and before.inputs and before.inputs != digest:
            problem = "the workload, or the cluster's nodes, are others than in the attempt before"
            raise InputError("the experiment", f"{problem}; delete it and make another one")
        experiment, plan = load(inputs, state)
        self._kept = replace(before or SavedComparison(), inputs=digest, attempts=attempt)
        self._keep({})
        jobs = len(experiment.workload.jobs)
        self._teller.tell(columns=plan.columns, jobs=jobs, nodes=len(state.spec.nodes), gpus=state.spec.gpus)
        executor = Executor(self._settings.id, self._executor_settings(inputs), NUMBERS * (attempt - 1) + 1)
        comparison = Comparison(plan, executor, _Reporter(self._teller), self._changed, self._kept)
        comparison.prepare(experiment, state)
        comparison.run()
        self._changed(comparison)
        self._teller.tell(stage=DONE, column="", repeat=0, ended=0)
        self._teller.flush()

    def _executor_settings(self, inputs: Inputs) -> ExecutorSettings:
        settings, spec = self._settings, inputs.spec
        given = ExecutorSettings(
            api=self._means.connect,
            wall_ns=self._means.wall_ns,
            directory=self._means.directory,
            say=self._means.say,
            scheduler_options=("--estimates", spec.estimates, "--seed", str(spec.seed)),
            actuator=spec.actuator,
            labels={UID_LABEL: settings.uid},
            annotations={OWNER: f"{settings.namespace}/{settings.name}"},
        )
        return replace(given, python=self._means.python) if self._means.python else given

    def _changed(self, comparison: Comparison) -> None:
        assert self._inputs is not None
        spec, clock = self._inputs.spec, "the cluster's own"
        place = "as its pools are" if spec.cluster is None else "spec.cluster"
        name = f"SchedulingExperiment {self._settings.namespace}/{self._settings.name}"
        meta = comparison.experiment.described(name, place, clock, spec.stretch) | comparison.meta()
        runs = tuple(comparison.runs)
        self._kept = replace(self._kept, calibration=comparison.calibration, runs=runs, meta=meta)
        files = self._files() if runs else {}
        report = self._keep(files)
        found = results_of(runs, spec.pod_schedulers)
        measured = comparison.calibration.figures() if comparison.calibration is not None else {}
        costs = {_camel(name): decimal(value) for name, value in measured.items() if name.endswith("_s")}
        self._teller.tell(
            done=comparison.done,
            results=found.columns,
            best=found.best,
            error=found.error,
            report=report if runs else {},
            calibration=costs,
        )

    def _files(self) -> dict[str, str]:
        comparison = compare(self._kept.runs)
        jobs, summary = (self._means.directory / name for name in (JOBS.removesuffix(".gz"), SUMMARY))
        write_jobs_csv(jobs, self._kept.runs)
        write_summary(summary, comparison, self._kept.meta)
        return {path.name: path.read_text(encoding="utf-8") for path in (jobs, summary)}

    def _keep(self, files: dict[str, str]) -> dict[str, Any]:
        first, self._is_there = not self._is_there, True
        return self._ask(lambda api: keep(api, self._settings, self._kept, files, first=first))

    def _ask(self, question: Callable[[Api], Coroutine[Any, Any, T]]) -> T:
        async def ask() -> T:
            api = self._means.connect()
            try:
                return await question(api)
            finally:
                await api.close()

        return asyncio.run(ask())


@dataclass(frozen=True, slots=True)
class _Reporter:
    """Writes each step of the comparison to the experiment's status."""

    teller: Teller

    def begin(self, step: Step) -> StepReporter:
        self.teller.tell(stage=str(step.stage), column=step.column, repeat=step.repeat, ended=0, jobs=step.jobs)
        return _StepReporter(self.teller, step.jobs)


@dataclass(frozen=True, slots=True)
class _StepReporter:
    teller: Teller
    jobs: int
    explain: Explain | None = None

    def update(self, ended: int, _now_s: float) -> None:
        self.teller.tell(ended=min(ended, self.jobs))

    def describe(self, _text: str) -> None:
        """The status shows how many probe jobs have ended, which is enough."""


async def clear_remains(api: Api, uid: str, wall_ns: Callable[[], int]) -> None:
    """What a runner that died has left, until it's gone: jobs there would run beside the next ones."""
    _, found = await api.list(NAMESPACE, labels=selector_of({UID_LABEL: uid}))
    for document in found:
        await run_namespace.remove(api, str(document["metadata"]["name"]), wall_ns)


def _camel(name: str) -> str:
    """start_s -> startSeconds."""
    first, *others = name.removesuffix("_s").split("_")
    return first + "".join(word.capitalize() for word in others) + "Seconds"
