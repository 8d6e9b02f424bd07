"""Executes runs on a cluster: each one in a new namespace with a scheduler program of its own, both removed at its end.

Each part of a run is an event loop of its own, so that an interruption (Ctrl-C) anywhere still reaches the code that cleans up.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Protocol, TypeVar

from emulator_runtime.domain.errors import ClusterError, EmuGpuError
from emulator_runtime.domain.job import JobSpec
from emulator_runtime.domain.units import to_ns, to_s
from emulator_runtime.profiles.table import ProfileTable
from operators.experiments import run_namespace
from operators.experiments.calibration import policy as probe_policy
from operators.experiments.calibration.calibration import Calibration, calibrated
from operators.experiments.calibration.observations import ProbeJobs, observations
from operators.experiments.calibration.probes import PROBES
from operators.experiments.cluster_state import ClusterState, read_cluster_state
from operators.experiments.emujobs import RunTarget, emujob_document, names_of
from operators.experiments.records import ObservedJob, RunInfo, run_record
from operators.experiments.run import Hooks, Progress, RunJobs, observe, waits_for
from operators.experiments.run_namespace import PROGRAM_FILES
from operators.experiments.scheduler_process import READY_S, Files, SchedulerProcess
from operators.kube.api import Api
from operators.kube.timestamps import rfc3339_micro
from operators.objects.names import DEFAULT_SCHEDULER, EXPERIMENT_LABEL, RUN_NAMESPACE_PREFIX
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.loop.strategies import Explain
from scheduler_sims.record import RunRecord

GATHER_S = 0.3
"""Seconds for which the scheduler gathers events before a decision. Jobs of one batch wait for each other in any case."""
LEAD_S = 5.0
"""From a scheduler's start until time 0 of its run: it is ready by then, and policies with rounds count from time 0."""
_PROBE_LIMIT_S = 240.0
_POLL_S = 0.1

T = TypeVar("T")


class StepReporter(Protocol):
    """Gets the progress of one step of a comparison."""

    @property
    def explain(self) -> Explain | None:
        """Gets the policy's reasons; None: they aren't reported."""
        ...

    def update(self, ended: int, now_s: float) -> None:
        """Jobs that have ended, and the seconds of the run."""
        ...

    def describe(self, text: str) -> None:
        """Which part of the step is being done."""
        ...


@dataclass(frozen=True, slots=True)
class ExecutorSettings:
    """What runs are executed with. `directory`: for the output of schedulers and probes. `say` gets sentences for the user.

    `scheduler_options`: of every scheduler program (kubeconfig, estimates, profiles). `python`: the command that runs
    `-m emugpu`. `actuator`: how EmuJobs are started and stopped. `labels` and `annotations` go on the runs' namespaces.
    `keep`: don't delete the namespaces. `profiles`: of the workload's models; None: the bundled ones. `program_files`: of the
    workload's programs, which each run's namespace has in a ConfigMap.
    """

    api: Callable[[], Api]
    wall_ns: Callable[[], int]
    directory: Path
    say: Callable[[str], None]
    scheduler_options: Sequence[str] = ()
    keep: bool = False
    python: Sequence[str] = (sys.executable, "-m", "emugpu")
    actuator: str = "jobs"
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    profiles: ProfileTable | None = None
    program_files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One observed run. `policy` empty: no scheduler program; the Kubernetes scheduler `pod_scheduler` places the pods.

    `gather_s`: for how long the scheduler gathers events. `predicted`: the predicted JCT of each job, seconds.
    """

    title: str
    jobs: Sequence[JobSpec]
    limit_s: float
    policy: str = ""
    gather_s: float = 0.0
    repeat: int = 1
    pod_scheduler: str = DEFAULT_SCHEDULER
    predicted: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class _RunContext:
    """A run that has a namespace, and a scheduler where it needs one. `begin_ns`: the wall clock at its time 0."""

    to: RunTarget
    begin_ns: int
    scheduler: SchedulerProcess | None = None

    def check(self) -> None:
        if self.scheduler is not None:
            self.scheduler.check()


class Executor:
    """`experiment` is a few letters and digits, unique for each comparison; its runs are numbered from `first` on."""

    def __init__(self, experiment: str, settings: ExecutorSettings, first: int = 1) -> None:
        self.experiment = experiment
        self._settings = settings
        self._numbers = count(first)

    def cluster_state(self) -> ClusterState:
        """Raises InputError where emugpu is not installed, ClusterError where the cluster can't be reached."""
        return self._with_api(lambda api: read_cluster_state(api, "--on kubernetes"))

    def calibrate(self, probes: Mapping[str, ProbeJobs], gather_s: float, reporter: StepReporter) -> Calibration:
        """Runs the probe jobs, one probe after the other, with a scheduler that gathers events for `gather_s`.

        Raises ClusterError where no job of a probe ends, or too few jobs of all probes.
        """
        request = RunRequest("calibration", (), 0.0, policy=f"{probe_policy.__file__}:ProbePolicy", gather_s=gather_s)
        with self._context(request) as context:
            observed: list[ObservedJob] = []
            described = {probe.name: probe.description for probe in PROBES}
            for number, (name, probe) in enumerate(probes.items(), 1):
                what = f"{len(probe.jobs)} probe jobs {described.get(name, name)}"
                reporter.describe(f"probe {number} of {len(probes)}: {what}")
                observed += self._probe(context, probe, what, reporter, len(observed))
            assert context.scheduler is not None
            seen = observations(probes, observed, context.scheduler.decisions(), gather_s)
            path = self._settings.directory / f"{context.to.scheduler}.probes.json"
            path.write_text(json.dumps(asdict(seen), indent=1), encoding="utf-8")
        return calibrated(seen)

    def _probe(
        self, context: _RunContext, probe: ProbeJobs, what: str, reporter: StepReporter, before: int
    ) -> list[ObservedJob]:
        def progress(ended: int, now_s: float) -> None:
            reporter.update(before + ended, now_s)

        run = self._run_jobs(context, probe.jobs, _PROBE_LIMIT_S)
        observed = self._follow(context, run, progress)
        if not any(job.ended for job in observed):
            waits = waits_for(run, observed)
            raise ClusterError(f"none of the {what} ended within {_PROBE_LIMIT_S:g} s: {waits}")
        return observed

    def check_jobs(self, jobs: Sequence[JobSpec], *, by_kubernetes: bool) -> None:
        """Raises InputError for a job that can't be an EmuJob, before anything runs."""
        names = names_of(jobs)
        scheduler, given = "" if by_kubernetes else "any", self._settings
        to = RunTarget("any", "any", scheduler, actuator=given.actuator, profiles=given.profiles)
        for job in jobs:
            emujob_document(job, names[job.job_id], to)

    def observe(self, request: RunRequest, cluster: ClusterSpec, progress: Progress) -> RunRecord:
        """The record of one run. Raises ClusterError where it can't be completed."""
        began_ns = self._settings.wall_ns()
        with self._context(request) as context:
            run = self._run_jobs(context, request.jobs, request.limit_s)
            observed = self._follow(context, run, progress)
            ended_ns = self._settings.wall_ns()
            notes: list[str] = []
            decisions = 0
            if context.scheduler is not None:
                made = context.scheduler.decisions()
                decisions = len(made)
                notes += [*context.scheduler.notes(), *_too_early(request.jobs, [one.jobs for one in made])]
        info = RunInfo(request.title, request.repeat, ended_ns, to_s(ended_ns - began_ns), decisions, tuple(notes))
        return run_record(info, request.jobs, observed, cluster)

    # --- parts of a run -----------------------------------------------------------------------------------------------

    @contextmanager
    def _context(self, request: RunRequest) -> Iterator[_RunContext]:
        to = self._target(request)
        with self._namespace(to):
            context = _RunContext(to, self._settings.wall_ns() + to_ns(LEAD_S if to.scheduler else 0.0))
            with self._scheduler(request, context) as context.scheduler:
                yield context

    def _target(self, request: RunRequest) -> RunTarget:
        run = f"{self.experiment}-{next(self._numbers)}"
        return RunTarget(
            namespace=f"{RUN_NAMESPACE_PREFIX}{run}",
            experiment=run,
            scheduler=f"exp-{run}" if request.policy else "",
            pod_scheduler=request.pod_scheduler,
            actuator=self._settings.actuator,
            policy=request.title,
            repeat=request.repeat,
            predicted=request.predicted,
            profiles=self._settings.profiles,
            program_files=PROGRAM_FILES if self._settings.program_files else "",
        )

    @contextmanager
    def _namespace(self, to: RunTarget) -> Iterator[None]:
        """Removed afterwards. Where the run has failed, a failure to remove it is only reported: the run's error is raised."""
        ours = True
        try:
            try:
                labels = {**self._settings.labels, **to.labels}
                annotations = {**self._settings.annotations, **to.annotations}
                files = self._settings.program_files

                async def create(api: Api) -> None:
                    await run_namespace.create(api, to.namespace, self.experiment, labels, annotations)
                    if files:
                        await run_namespace.add_program_files(api, to.namespace, files)

                self._with_api(create)
            except EmuGpuError as error:
                ours = error.retry_helps  # it may have been created, and only the reply was lost
                raise
            yield
        except BaseException:
            if ours:
                try:
                    self._remove(to.namespace)
                except EmuGpuError as error:
                    self._settings.say(str(error))
            raise
        self._remove(to.namespace)

    def _remove(self, namespace: str) -> None:
        if not self._settings.keep:
            self._with_api(lambda api: run_namespace.remove(api, namespace, self._settings.wall_ns))

    @contextmanager
    def _scheduler(self, request: RunRequest, context: _RunContext) -> Iterator[SchedulerProcess | None]:
        if not request.policy:
            yield None
            return
        files = Files.within(self._settings.directory, context.to.scheduler)
        with SchedulerProcess(self._command(request, context), files, self._settings.say) as process:
            asyncio.run(_until_ready(process))
            yield process

    def _command(self, request: RunRequest, context: _RunContext) -> list[str]:
        to = context.to
        until = ("--until-done", f"{EXPERIMENT_LABEL}={to.experiment}", "--jobs", str(len(request.jobs)))
        return [
            *(*self._settings.python, "scheduler", "--policy", request.policy, "--name", to.scheduler),
            *("--namespace", to.namespace, "--decide-every", f"{request.gather_s:g}", "--json"),
            # No predictions: they would be computed while the first jobs start, and all jobs of a run have a prediction.
            *("--epoch", rfc3339_micro(context.begin_ns), "--no-predictions"),
            # One scheduler at a time: a restarted one takes over the lease of the dead one at once.
            *("--identity", f"{os.uname().nodename}_{os.getpid()}"),
            *(until if request.jobs else ()),
            *self._settings.scheduler_options,
        ]

    def _run_jobs(self, context: _RunContext, jobs: Sequence[JobSpec], limit_s: float) -> RunJobs:
        begin_ns = max(context.begin_ns, self._settings.wall_ns())
        return RunJobs(jobs, names_of(jobs), context.to, begin_ns, limit_s)

    def _follow(self, context: _RunContext, run: RunJobs, progress: Progress) -> list[ObservedJob]:
        hooks = Hooks(self._settings.wall_ns, progress, context.check, self._settings.say)
        return self._with_api(lambda api: observe(api, run, hooks))

    def _with_api(self, work: Callable[[Api], Coroutine[Any, Any, T]]) -> T:
        async def run() -> T:
            api = self._settings.api()
            try:
                return await work(api)
            finally:
                await api.close()

        return asyncio.run(run())


def limit_s(predicted_makespan_s: float) -> float:
    """When an observed run is given up: after three times its predicted makespan and ten minutes."""
    return 3 * predicted_makespan_s + 600.0


async def _until_ready(process: SchedulerProcess) -> None:
    """Raises ClusterError where the scheduler doesn't get ready, or has ended."""
    loop = asyncio.get_running_loop()
    limit = loop.time() + READY_S
    while not process.ready:
        process.check()
        if loop.time() > limit:
            raise ClusterError(f"the scheduler is not ready after {READY_S:g} s: {process.last_lines()}")
        await asyncio.sleep(_POLL_S)


def _too_early(jobs: Sequence[JobSpec], known: Sequence[int]) -> list[str]:
    """A note where the first decision did not know all jobs of the first instant, as it does in the prediction."""
    first_s = min((job.submit_s for job in jobs), default=0.0)
    wanted, seen = sum(job.submit_s == first_s for job in jobs), next((number for number in known if number), 0)
    if not 0 < seen < wanted:
        return []
    return [f"the scheduler's first decision knew {seen} of the {wanted} jobs that were submitted together"]
