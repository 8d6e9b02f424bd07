"""The part of a snapshot that one caller may see: jobs of the permitted namespaces, and devices with their permitted holders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from operators.api.authentication.callers import Scope
from operators.api.model.snapshot import Device, Experiment, Job, Run, Snapshot
from operators.api.model.statistics import Window, held_share, whole_window
from operators.kube.api import NotThereError

SIMULATED = "simulated"


@dataclass(frozen=True, slots=True)
class View:
    """`jobs`: those that the caller may see; if a run was chosen, the jobs of that run."""

    snapshot: Snapshot
    jobs: Sequence[Job]
    run: Run | None = None

    @property
    def devices(self) -> list[Device]:
        """The devices that the run could use. A comparison has nodes of its own, known from the devices that its jobs held."""
        snapshot = self.snapshot
        if self.run is None or snapshot.cluster.clock == "wall":
            return list(snapshot.devices)
        jobs = (job for job in snapshot.jobs if self.run is not None and job.experiment == self.run.experiment)
        nodes = {node for job in jobs for node in job.nodes}
        return [device for device in snapshot.devices if device.node in nodes]

    @property
    def gpus(self) -> int:
        """The number of GPUs among `devices`; a comparison states its own number, which includes GPUs that no job used."""
        stated = "0"
        if self.run is not None and self.snapshot.cluster.clock == "emulated":
            own = (each.meta for each in self.snapshot.experiments if each.id == self.run.experiment)
            stated = next(own, {}).get("gpus", "0")
        return max(sum(device.index is not None for device in self.devices), int(stated) if stated.isdecimal() else 0)

    def held_share(self, window: Window) -> float | None:
        """The share of the GPUs' time in which jobs held them."""
        gpus = [device.id for device in self.devices if device.index is not None]
        return held_share(self.jobs, self.snapshot.runs, gpus, window, there_are=self.gpus)

    def window(self, since_s: float | None, until_s: float | None) -> Window:
        """The requested window; a missing limit is that of the jobs. An end before the beginning gives an empty window."""
        whole = whole_window(self.snapshot, self.jobs)
        since = whole.since_s if since_s is None else since_s
        return Window(since, max(since, whole.until_s if until_s is None else until_s), whole.now_s)


def visible(snapshot: Snapshot, scope: Scope) -> Sequence[Job]:
    """The jobs that the caller may see."""
    return snapshot.jobs if not scope.namespace else [job for job in snapshot.jobs if scope.shows(job)]


def device_view(snapshot: Snapshot, scope: Scope) -> list[Device]:
    """All devices. Every caller sees that a device is held; only readers of the job's namespace see by which job."""

    def shown(uid: str) -> bool:
        job = snapshot.job(uid)
        return job is not None and scope.shows(job)

    if not scope.namespace:
        return list(snapshot.devices)
    return [replace(device, holders=tuple(filter(shown, device.holders))) for device in snapshot.devices]


def experiment_view(snapshot: Snapshot, scope: Scope) -> list[Experiment]:
    """The experiments and runs of which the caller sees a job."""
    if not scope.namespace:
        return list(snapshot.experiments)
    jobs = visible(snapshot, scope)
    found = []
    for experiment in snapshot.experiments:
        own = [job for job in jobs if job.experiment == experiment.id]
        if own:
            runs = {job.run for job in own}
            meta = {**experiment.meta, **({"jobs": str(len(own))} if "jobs" in experiment.meta else {})}
            kept = tuple(run for run in experiment.runs if run.id in runs)
            found.append(replace(experiment, runs=kept, meta=meta))
    return found


def of_run(snapshot: Snapshot, scope: Scope, run: str) -> View:
    """The visible jobs of one run. Without `run`: all jobs on a wall clock; on an emulated clock, where all runs begin at 0 and
    can't be shown together, the first observed run. Raises NotThereError for a run that the caller can't see."""
    runs = {each.id: each for experiment in experiment_view(snapshot, scope) for each in experiment.runs}
    jobs = visible(snapshot, scope)
    if run and run not in runs:
        raise NotThereError(f"there is no run {run}; GET /api/v1/experiments lists them")
    chosen = runs[run] if run else _first_observed(runs.values()) if snapshot.cluster.clock == "emulated" else None
    if chosen is None:
        return View(snapshot, jobs)
    return View(snapshot, [job for job in jobs if job.run == chosen.id], chosen)


def matching(jobs: Sequence[Job], *tests: Callable[[Job], bool] | None) -> Sequence[Job]:
    """The jobs that pass all tests; tests that are None are skipped."""
    found = jobs
    for test in tests:
        if test is not None:
            found = [job for job in found if test(job)]
    return found


def _first_observed(runs: Iterable[Run]) -> Run | None:
    every = list(runs)
    return next((run for run in every if run.cluster != SIMULATED), every[0] if every else None)
