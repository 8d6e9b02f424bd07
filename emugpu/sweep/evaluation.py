"""One point of a sweep: its workload, the simulation, its figures. It runs in a process of its own."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

from emugpu.sweep.plan import AS_IT_IS, Inputs, Point, Sweep
from emulator_runtime.domain.errors import EmuGpuError, InputError
from emulator_runtime.profiles.table import ProfileTable
from scheduler_sims.experiment import Experiment
from scheduler_sims.generators.changes import at_load, everything, from_zero, sample, window
from scheduler_sims.generators.generate import as_workload, jobs_at_load
from scheduler_sims.inputs.cluster_file import ClusterSpec, load_cluster
from scheduler_sims.inputs.description import gpu_seconds
from scheduler_sims.inputs.fit import check_fits
from scheduler_sims.inputs.truth import WorkloadTruth
from scheduler_sims.inputs.workload import Workload, load_workload, parse_workload
from scheduler_sims.record import JobRecord, RunRecord
from scheduler_sims.reports.metrics import figures
from scheduler_sims.reports.stats import mean, quantile

GRID = tuple(number / 100 for number in range(101))
"""The quantiles of a point's JCTs, from which the report draws their distribution."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a point gave. `figures`: by name, None where a figure isn't defined. `jct_s`: its quantiles on GRID.

    These are the same for the same point on any machine. The rest isn't: `policy_s` and `wall_s` are seconds of this machine,
    for all decisions and for the whole simulation. `error`: why there are no figures.
    """

    figures: Mapping[str, float | None] = field(default_factory=dict)
    jct_s: tuple[float, ...] = ()
    policy_s: float = 0.0
    wall_s: float = 0.0
    error: str = ""

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


def evaluate(inputs: Inputs, point: Point) -> Outcome:
    """Simulates the point. Errors of the tree become a part of the outcome, since not all of them can cross processes."""
    try:
        return _evaluate(inputs, point)
    except EmuGpuError as error:
        return Outcome(error=str(error))


def check(sweep: Sweep) -> None:
    """Raises what would make all points fail: wrong files, policies or estimates, and jobs that don't fit on the cluster."""
    cluster, place = _cluster(sweep.inputs), str(sweep.inputs.workload)
    if sweep.inputs.workload is not None:
        check_fits(
            _trace(sweep.inputs),
            cluster,
            place,
            lambda *_: f"emugpu workload change {place} --fitting leaves such jobs out",
        )
    for estimates in sweep.estimates:
        first = Point(sweep.loads[0], sweep.seeds[0], estimates, sweep.policies[0])
        workload = workload_of(sweep.inputs, first, cluster)
        if sweep.inputs.warm_up + sweep.inputs.cool_down >= len(workload.jobs):
            raise InputError("--warm-up", f"and --cool-down leave none of {len(workload.jobs)} jobs")
        Experiment.of(workload, cluster, (estimates, first.seed)).check_policies(sweep.policies)


def ignore_interrupts() -> None:
    """For a process of the pool: Ctrl-C reaches all processes of a terminal, and the one that started them ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _evaluate(inputs: Inputs, point: Point) -> Outcome:
    cluster = _cluster(inputs)
    workload = workload_of(inputs, point, cluster)
    experiment = Experiment.of(workload, cluster, (point.estimates, point.seed))
    run = experiment.simulate(point.policy)
    counted = _counted(run, inputs)
    alone_s = {job.job_id: _alone_s(experiment.truth, workload, job.job_id) for job in counted.jobs}
    done = [job for job in counted.jobs if job.status == "finished"]
    jcts = [job.jct_s for job in done]
    slowdowns = [job.jct_s / alone_s[job.job_id] for job in done if alone_s[job.job_id] > 0]
    return Outcome(
        figures={
            **figures(counted).as_dict(),
            **_of_the_whole(run),
            "p99_jct_s": quantile(jcts, 0.99),
            "mean_slowdown": mean(slowdowns),
            "p95_slowdown": quantile(slowdowns, 0.95),
            "fairness": jain(slowdowns),
            "decisions": float(run.decisions),
        },
        jct_s=tuple(quantile(jcts, share) or 0.0 for share in GRID) if jcts else (),
        policy_s=run.policy_s,
        wall_s=run.wall_s,
    )


def _of_the_whole(run: RunRecord) -> dict[str, float | None]:
    """Figures of the cluster rather than of jobs, which warm-up doesn't change."""
    whole = figures(run).as_dict()
    return {name: whole[name] for name in ("makespan_s", "utilisation", "cpu_utilisation", "preemptions", "failed")}


def jain(values: list[float]) -> float | None:
    """Jain's fairness index (Jain, Chiu, Hawe 1984): 1 if all are alike, 1/n if one has everything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else None


def _counted(run: RunRecord, inputs: Inputs) -> RunRecord:
    """The run with the jobs that count. Raises InputError if none is left."""
    ordered: list[JobRecord] = sorted(run.jobs, key=lambda job: (job.submit_s, job.row))
    kept = ordered[inputs.warm_up : len(ordered) - inputs.cool_down]
    if not kept:
        raise InputError("--warm-up", f"and --cool-down leave none of {len(ordered)} jobs")
    return replace(run, jobs=tuple(kept))


def _alone_s(truth: WorkloadTruth, workload: Workload, job_id: str) -> float:
    """Seconds alone on the cluster, with what it can run on and the fastest GPUs that there are."""
    return min(truth.duration_s(job_id, each.name, None) for each in workload.by_id[job_id].configurations)


def workload_of(inputs: Inputs, point: Point, cluster: ClusterSpec) -> Workload:
    """The point's jobs; they depend on load and seed only. Raises InputError."""
    if inputs.recipe is not None:
        jobs = jobs_at_load(inputs.recipe, point.seed, point.load, cluster.gpus)
        text = as_workload(jobs, f"Generated: {inputs.recipe.kind}", inputs.gpus_per_node)
        workload = parse_workload(text, "the generated workload", inputs.recipe.kind, ProfileTable.bundled())
    else:
        workload = _part(inputs, point, cluster)
    check_fits(workload, cluster, str(inputs.workload or workload.name))
    return workload


def _part(inputs: Inputs, point: Point, cluster: ClusterSpec) -> Workload:
    """Jobs of the trace, from 0 on."""
    trace = _trace(inputs)
    taken = everything([job.submit_s for job in trace.jobs])
    if inputs.jobs is not None:
        taken = window(taken, inputs.jobs, point.seed)
    taken = from_zero(sample(taken, inputs.sample, point.seed))
    if point.load != AS_IT_IS:
        taken = at_load(taken, _gpu_s(inputs), cluster.gpus, point.load)
    jobs = (replace(trace.jobs[one.index], submit_s=one.submit_s, row=row) for row, one in enumerate(taken))
    return replace(trace, jobs=tuple(jobs), lines=tuple(trace.lines[one.index] for one in taken))


@lru_cache(maxsize=1)
def _cluster(inputs: Inputs) -> ClusterSpec:
    return load_cluster(inputs.cluster)


@lru_cache(maxsize=1)
def _trace(inputs: Inputs) -> Workload:
    assert inputs.workload is not None
    return load_workload(inputs.workload, inputs.profiles)


@lru_cache(maxsize=1)
def _gpu_s(inputs: Inputs) -> tuple[float, ...]:
    """GPU-seconds of each job, in the order of the file."""
    return gpu_seconds(_trace(inputs), _cluster(inputs))
