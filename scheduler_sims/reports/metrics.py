"""The figures of one run, by which policies are compared.

Only finished jobs count for job completion time (JCT) and queueing delay: the time until a failure isn't a completion time.
Failed jobs are counted separately; the makespan includes them, because the cluster was busy with them, and replicas of services.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from operator import attrgetter

from scheduler_sims.record import JobRecord, RunRecord
from scheduler_sims.reports.stats import mean, quantile

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one run, or their means over repeats. Times are emulated seconds; None is undefined: no job finished.

    `p95_jct_s` and the median are interpolated linearly (see stats.quantile). `makespan_s`: from the first submission to the
    last end of any job. `utilisation`: the share of gpus x makespan in which at least one job held a device; None on a
    cluster without GPUs. Example: 2 GPUs, a makespan of 100 s, and one GPU held for 50 s are 50 / 200 = 25%.
    `cpu_utilisation`: the share of CPUs x makespan that was given to jobs; None if a record doesn't say how many CPUs
    there are.
    """

    mean_jct_s: float | None
    median_jct_s: float | None
    p95_jct_s: float | None
    makespan_s: float | None
    utilisation: float | None
    mean_queueing_delay_s: float | None
    cpu_utilisation: float | None
    preemptions: float
    finished: float
    failed: float

    def as_dict(self) -> dict[str, float | None]:
        """The figures by name, in the order of the table."""
        return asdict(self)


FIGURE_NAMES = tuple(field.name for field in fields(Figures))
COUNT_NAMES = ("preemptions", "finished", "failed")


def finished_jobs(run: RunRecord) -> list[JobRecord]:
    """The jobs whose completion times count."""
    return [job for job in run.jobs if job.status == "finished"]


def failed_jobs(run: RunRecord) -> list[JobRecord]:
    """The jobs that did not finish, without replicas of services, which have no end of their own."""
    return [job for job in run.jobs if job.status not in ("finished", "removed")]


def figures(run: RunRecord) -> Figures:
    """The figures of one run."""
    done = finished_jobs(run)
    jcts = [job.jct_s for job in done]
    window = _window(run)
    return Figures(
        mean_jct_s=mean(jcts),
        median_jct_s=quantile(jcts, 0.5),
        p95_jct_s=quantile(jcts, 0.95),
        makespan_s=window[1] - window[0] if window else None,
        utilisation=_utilisation(run, window),
        mean_queueing_delay_s=mean([job.queueing_delay_s for job in done]),
        cpu_utilisation=_cpu_utilisation(run, window),
        preemptions=sum(job.preemptions for job in run.jobs),
        finished=len(done),
        failed=len(failed_jobs(run)),
    )


def mean_figures(several: Iterable[Figures]) -> Figures:
    """The mean of each figure over the runs in which it is defined."""
    rows = [one.as_dict() for one in several]
    means = {name: mean([value for row in rows if (value := row[name]) is not None]) for name in FIGURE_NAMES}
    counts = {name: means.pop(name) or 0.0 for name in COUNT_NAMES}
    return Figures(**means, **counts)  # type: ignore[arg-type]  # counts are never None


def held_gpu_s(run: RunRecord, within: Interval) -> float:
    """Device-seconds held in a window, at most gpus x window: a device that several jobs share counts once."""
    on_devices = sorted((s for s in run.spans if s.device is not None), key=attrgetter("node", "device"))
    total = 0.0
    for _device, spans in groupby(on_devices, key=attrgetter("node", "device")):
        clipped = [(max(s.start_s, within[0]), min(s.end_s, within[1])) for s in spans]
        total += sum(end - start for start, end in union(clipped))
    return total


def given_cpu_s(run: RunRecord, within: Interval) -> float:
    """CPU-seconds given to jobs in a window, with all changes over time."""
    clipped = ((s.cpu_milli, min(s.end_s, within[1]) - max(s.start_s, within[0])) for s in run.host_spans)
    return sum(cpu_milli / 1000 * seconds for cpu_milli, seconds in clipped if seconds > 0)


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The intervals in order, merged if they overlap or touch; empty ones are dropped."""
    merged: list[Interval] = []
    for start, end in sorted(i for i in intervals if i[1] > i[0]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _window(run: RunRecord) -> Interval | None:
    if not run.jobs:
        return None
    return min(job.submit_s for job in run.jobs), max(job.finish_s for job in run.jobs)


def _utilisation(run: RunRecord, window: Interval | None) -> float | None:
    if window is None or run.gpus == 0 or window[1] <= window[0]:
        return None
    return held_gpu_s(run, window) / (run.gpus * (window[1] - window[0]))


def _cpu_utilisation(run: RunRecord, window: Interval | None) -> float | None:
    if window is None or run.cpu_milli == 0 or window[1] <= window[0]:
        return None
    return given_cpu_s(run, window) / (run.cpu_milli / 1000 * (window[1] - window[0]))
