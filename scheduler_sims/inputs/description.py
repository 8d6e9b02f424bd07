"""What a workload is like: its size, its load on a cluster, and the distributions of GPUs, durations, arrivals and users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

import numpy as np

from emulator_runtime.domain.job import JobSpec, TimedWork
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.inputs.truth import WorkloadTruth
from scheduler_sims.inputs.workload import Workload

QUANTILES = (0.1, 0.5, 0.9, 0.99)
MOST_USERS = 10


@dataclass(frozen=True, slots=True)
class Distribution:
    """Figures of some values; quantiles are interpolated linearly. All 0 without values."""

    count: int
    mean: float
    least: float
    p10: float
    p50: float
    p90: float
    p99: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Distribution:
        """The figures of these values."""
        if not values:
            return cls(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        p10, p50, p90, p99 = np.quantile(values, QUANTILES).tolist()
        return cls(len(values), float(np.mean(values)), min(values), p10, p50, p90, p99, max(values))


@dataclass(frozen=True, slots=True)
class Share:
    """The jobs of one size or user, and the GPU time that they need in seconds."""

    name: str
    jobs: int
    gpu_s: float


@dataclass(frozen=True, slots=True)
class Description:
    """A workload in figures.

    `span_s`: from the first submission to the last. `gpu_s`: GPUs x duration over all jobs. `load`: `gpu_s` over what the
    cluster's GPUs give in the span, 1 where the jobs need as much as there is; None without a cluster, GPUs or a span.
    `unknown`: jobs whose duration isn't known without a cluster, since a model's speed depends on the GPU type; they are left
    out of `gpu_s`, `durations_s` and the shares' GPU time. `users`: the largest by GPU time.
    """

    jobs: int
    span_s: float
    gpu_s: float
    load: float | None
    cluster_gpus: int | None
    gangs: int
    unknown: int
    gpus: Distribution
    durations_s: Distribution
    interarrivals_s: Distribution
    sizes: tuple[Share, ...]
    user_count: int
    users: tuple[Share, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Measures:
    """Of each job in the order of submission: its submission, GPUs, and duration in seconds (None: unknown)."""

    submit_s: tuple[float, ...]
    gpus: tuple[int, ...]
    durations_s: tuple[float | None, ...]
    users: tuple[str, ...]

    @property
    def interarrivals_s(self) -> list[float]:
        return np.diff(self.submit_s).tolist()  # type: ignore[no-any-return]

    @property
    def known_durations_s(self) -> list[float]:
        return [duration for duration in self.durations_s if duration is not None]


def measure(workload: Workload, cluster: ClusterSpec | None) -> Measures:
    """The jobs' measures; durations of models are those on the cluster's fastest GPUs that they allow."""
    truth = None if cluster is None else WorkloadTruth(workload, cluster)
    jobs = sorted(workload.jobs, key=lambda job: (job.submit_s, job.row))
    return Measures(
        tuple(job.submit_s for job in jobs),
        tuple(_gpus(job) for job in jobs),
        tuple(_duration_s(job, truth) for job in jobs),
        tuple(job.user for job in jobs),
    )


def describe(measures: Measures, gangs: int, cluster: ClusterSpec | None) -> Description:
    """The description. `gangs`: jobs that span nodes."""
    times = [(gpus * (duration or 0.0)) for gpus, duration in zip(measures.gpus, measures.durations_s, strict=True)]
    gpu_s, span_s = sum(times), measures.submit_s[-1] - measures.submit_s[0]
    capacity_s = cluster.gpus * span_s if cluster else 0.0
    sizes = _shares([str(gpus) for gpus in measures.gpus], times)
    users = sorted(_shares(measures.users, times), key=lambda share: (-share.gpu_s, -share.jobs, share.name))
    return Description(
        jobs=len(measures.gpus),
        span_s=span_s,
        gpu_s=gpu_s,
        load=gpu_s / capacity_s if capacity_s else None,
        cluster_gpus=cluster.gpus if cluster else None,
        gangs=gangs,
        unknown=len(measures.durations_s) - len(measures.known_durations_s),
        gpus=Distribution.of(measures.gpus),
        durations_s=Distribution.of(measures.known_durations_s),
        interarrivals_s=Distribution.of(measures.interarrivals_s),
        sizes=tuple(sorted(sizes, key=lambda share: int(share.name))),
        user_count=len(users),
        users=tuple(users[:MOST_USERS]),
    )


def gpu_seconds(workload: Workload, cluster: ClusterSpec) -> tuple[float, ...]:
    """GPUs x duration of each job, in the order of the workload."""
    truth = WorkloadTruth(workload, cluster)
    return tuple(_gpus(job) * (_duration_s(job, truth) or 0.0) for job in workload.jobs)


def gangs_of(workload: Workload) -> int:
    """Jobs that need several nodes."""
    return sum(job.configurations[0].min_tasks > 1 for job in workload.jobs)


def _gpus(job: JobSpec) -> int:
    first = job.configurations[0]
    return first.gpus * first.min_tasks


def _duration_s(job: JobSpec, truth: WorkloadTruth | None) -> float | None:
    first = job.configurations[0].name
    work = job.work[first]
    if isinstance(work, TimedWork):
        return work.duration_s
    duration_s = None if truth is None else truth.duration_s(job.job_id, first, None)
    return duration_s if duration_s is not None and isfinite(duration_s) else None


def _shares(names: Sequence[str], times: Sequence[float]) -> list[Share]:
    jobs: dict[str, int] = {}
    totals: dict[str, float] = {}
    for name, time in zip(names, times, strict=True):
        jobs[name] = jobs.get(name, 0) + 1
        totals[name] = totals.get(name, 0.0) + time
    return [Share(name, count, totals[name]) for name, count in jobs.items()]
