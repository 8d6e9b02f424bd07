"""Runs on a real cluster, each from nothing: a namespace, a scheduler, the jobs; and whatever happens, nothing of them is left.

Each part of a run is an event loop of its own, so that an interruption anywhere still comes to the part that clears up.
"""

from __future__ import annotations

import asyncio
import json
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
from operators.experiments import run_namespace
from operators.experiments.calibration import policy as probe_policy
from operators.experiments.calibration.costs import Calibration, calibrated
from operators.experiments.calibration.probes import probe_jobs, probes_of
from operators.experiments.cluster_state import Present, look
from operators.experiments.emujobs import Destination, emujob_document, names_of
from operators.experiments.records import About, Told, run_record
from operators.experiments.run import Orders, Progress, Surroundings, observe
from operators.experiments.scheduler_process import READY_S, Files, SchedulerProcess
from operators.kube.api import Api
from operators.kube.timestamps import rfc3339_micro
from operators.objects.names import EXPERIMENT_LABEL
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.record import RunRecord

GATHER_S = 0.3
"""What comes within so many seconds is decided together. Jobs of one instant wait for each other however long it takes."""
LEAD_S = 5.0
"""From a scheduler's start until time 0 of its run: it is ready by then, and counts rounds from the first submission on."""
_PHASE_LIMIT_S = 240.0
_TICK_S = 0.1

T = TypeVar("T")


class Connection(Api, Protocol):
    """An API server, until it's closed."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Tools:
    """What a laboratory is given. `scheduler_options`: of every scheduler program (the cluster, estimates, profiles).

    `keep`: namespaces stay, for somebody to look at. `python`: what runs `-m emugpu`. `actuator`: of the EmuJobs that a
    scheduler of ours has. `labels` and `annotations`: of the namespaces.
    """

    api: Callable[[], Connection]
    wall_ns: Callable[[], int]
    directory: Path
    say: Callable[[str], None]
    scheduler_options: Sequence[str] = ()
    keep: bool = False
    python: Sequence[str] = (sys.executable, "-m", "emugpu")
    actuator: str = "jobs"
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Setting:
    """One observed run. `policy` empty: no scheduler of ours, Kubernetes' own called `pod_scheduler` places the pods."""

    title: str
    jobs: Sequence[JobSpec]
    limit_s: float
    policy: str = ""
    gather_s: float = 0.0
    repeat: int = 1
    pod_scheduler: str = "default-scheduler"


@dataclass(slots=True)
class _Field:
    """Where a run takes place, and what is noted about it on the way."""

    to: Destination
    begin_ns: int
    scheduler: SchedulerProcess | None = None

    def check(self) -> None:
        if self.scheduler is not None:
            self.scheduler.check()


class Laboratory:
    """`experiment` names the runs: a few letters and digits, another one for each use of a cluster. They count from `first`."""

    def __init__(self, experiment: str, tools: Tools, first: int = 1) -> None:
        self.experiment = experiment
        self._tools = tools
        self._numbers = count(first)

    def look(self) -> Present:
        """What there is. Raises InputError where there is no emugpu, ClusterError where it can't be reached."""
        return self._with_api(look)

    def calibrate(
        self, cluster: ClusterSpec, gather_s: float, told: Callable[[str], None] = lambda _text: None
    ) -> Calibration:
        """Runs the probes with a scheduler that gathers events for so long. Raises ClusterError where they don't come through."""
        jobs = probe_jobs(cluster)
        setting = Setting("calibration", (), 0.0, policy=f"{probe_policy.__file__}:Probing", gather_s=gather_s)
        with self._field(setting) as place:
            told_by_all: list[Told] = []
            phases = [phase for phase in jobs.phases if phase]
            for number, phase in enumerate(phases, 1):
                told(f"calibrating, part {number} of {len(phases)}")
                told_by_all += self._run(place, phase, _PHASE_LIMIT_S, _unheard)
            assert place.scheduler is not None
            probes = probes_of(jobs, told_by_all, place.scheduler.decisions(), gather_s)
            path = self._tools.directory / f"{place.to.scheduler}.probes.json"
            path.write_text(json.dumps(asdict(probes), indent=1), encoding="utf-8")
        return calibrated(probes)

    def check_jobs(self, jobs: Sequence[JobSpec], *, by_kubernetes: bool) -> None:
        """Raises InputError for a job that has no form as an EmuJob, before anything runs."""
        names = names_of(jobs)
        for job in jobs:
            emujob_document(job, names[job.job_id], self._to("any", "any", "" if by_kubernetes else "any"))

    def observe(self, setting: Setting, cluster: ClusterSpec, progress: Progress) -> RunRecord:
        """The record of one run. Raises ClusterError where it can't be brought to its end."""
        began_ns = self._tools.wall_ns()
        with self._field(setting) as place:
            told = self._run(place, setting.jobs, setting.limit_s, progress)
            ended_ns = self._tools.wall_ns()
            notes: list[str] = []
            decisions = 0
            if place.scheduler is not None:
                made = place.scheduler.decisions()
                decisions = len(made)
                notes += [*place.scheduler.notes(), *_too_early(setting.jobs, [one.jobs for one in made])]
        about = About(setting.title, setting.repeat, ended_ns, to_s(ended_ns - began_ns), decisions, tuple(notes))
        return run_record(about, setting.jobs, told, cluster)

    # --- parts of a run -----------------------------------------------------------------------------------------------

    @contextmanager
    def _field(self, setting: Setting) -> Iterator[_Field]:
        number = next(self._numbers)
        name = f"emugpu-exp-{self.experiment}-{number}"
        scheduler = f"exp-{self.experiment}-{number}" if setting.policy else ""
        to = self._to(name, f"{self.experiment}-{number}", scheduler, setting.pod_scheduler)
        with self._namespace(name):
            place = _Field(to, self._tools.wall_ns() + to_ns(LEAD_S if scheduler else 0.0))
            with self._scheduler(setting, place) as place.scheduler:
                yield place

    @contextmanager
    def _namespace(self, name: str) -> Iterator[None]:
        """Gone afterwards, unless it's to be kept. Where something failed before, that is raised and this only said."""
        ours = True
        try:
            try:
                marks = self._tools.labels, self._tools.annotations
                self._with_api(lambda api: run_namespace.make(api, name, self.experiment, *marks))
            except EmuGpuError as error:
                ours = error.retry_helps  # it may be there, and only the answer didn't come
                raise
            yield
        except BaseException:
            if ours:
                try:
                    self._clear(name)
                except EmuGpuError as error:
                    self._tools.say(str(error))
            raise
        self._clear(name)

    def _clear(self, name: str) -> None:
        if not self._tools.keep:
            self._with_api(lambda api: run_namespace.clear(api, name, self._tools.wall_ns))

    def _to(
        self, namespace: str, experiment: str, scheduler: str, pod_scheduler: str = "default-scheduler"
    ) -> Destination:
        return Destination(namespace, experiment, scheduler, pod_scheduler, self._tools.actuator)

    @contextmanager
    def _scheduler(self, setting: Setting, place: _Field) -> Iterator[SchedulerProcess | None]:
        if not setting.policy:
            yield None
            return
        files = Files.within(self._tools.directory, place.to.scheduler)
        with SchedulerProcess(self._command(setting, place), files, self._tools.say) as process:
            asyncio.run(_until_ready(process))
            yield process

    def _command(self, setting: Setting, place: _Field) -> list[str]:
        to = place.to
        until = ("--until-done", f"{EXPERIMENT_LABEL}={to.experiment}", "--jobs", str(len(setting.jobs)))
        return [
            *(*self._tools.python, "scheduler", "--policy", setting.policy, "--name", to.scheduler),
            *("--namespace", to.namespace, "--decide-every", f"{setting.gather_s:g}", "--json"),
            # Forecasts of single jobs would be made while the first of them start, and an experiment has one for all of them.
            *("--epoch", rfc3339_micro(place.begin_ns), "--no-predictions"),
            *(until if setting.jobs else ()),
            *self._tools.scheduler_options,
        ]

    def _run(self, place: _Field, jobs: Sequence[JobSpec], limit_s: float, progress: Progress) -> list[Told]:
        begin_ns = max(place.begin_ns, self._tools.wall_ns())
        orders = Orders(jobs, names_of(jobs), place.to, begin_ns, limit_s)
        around = Surroundings(self._tools.wall_ns, progress, place.check)
        return self._with_api(lambda api: observe(api, orders, around))

    def _with_api(self, work: Callable[[Api], Coroutine[Any, Any, T]]) -> T:
        async def run() -> T:
            api = self._tools.api()
            try:
                return await work(api)
            finally:
                await api.close()

        return asyncio.run(run())


async def _until_ready(process: SchedulerProcess) -> None:
    """Raises ClusterError where it never is, or has ended."""
    loop = asyncio.get_running_loop()
    limit = loop.time() + READY_S
    while not process.ready:
        process.check()
        if loop.time() > limit:
            raise ClusterError(f"the scheduler is not ready after {READY_S:g} s: {process.last_words()}")
        await asyncio.sleep(_TICK_S)


def _too_early(jobs: Sequence[JobSpec], known: Sequence[int]) -> list[str]:
    """Whether the first decision about any job was about all jobs of that instant, as it is in the prediction."""
    first_s = min((job.submit_s for job in jobs), default=0.0)
    wanted, seen = sum(job.submit_s == first_s for job in jobs), next((number for number in known if number), 0)
    if not 0 < seen < wanted:
        return []
    return [f"the scheduler decided when {seen} of the {wanted} jobs submitted together had come"]


def _unheard(_ended: int, _now_s: float) -> None:
    """Nobody watches."""
