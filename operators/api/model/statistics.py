"""Figures over many jobs: queue lengths, device occupancy, distributions of completion times. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor, inf
from typing import Annotated

from pydantic import Field

from operators.api.model.natural_order import place_order
from operators.api.model.snapshot import Job, JobRun, Snapshot
from operators.objects.names import ENDED, FINAL, HOLDING

MOST_POINTS = 600
"""Points per line; a screen can't show more."""
QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)

Interval = tuple[float, float]
Runs = Mapping[str, Sequence[JobRun]]


@dataclass(frozen=True, slots=True)
class Window:
    """A window in seconds; runs and waits that have not ended count until `now_s`."""

    since_s: float
    until_s: float
    now_s: float

    def clip(self, interval: Interval) -> Interval:
        return max(interval[0], self.since_s), min(interval[1], self.until_s)


@dataclass(frozen=True, slots=True)
class Span:
    """The time in which a job held a device."""

    device: str
    job: Annotated[str, Field(description="The job's uid.")]
    name: str
    from_s: float
    to_s: Annotated[float | None, Field(description="Null: the job still holds it.")]
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Line:
    """A step line: each value holds from its time on."""

    times_s: tuple[float, ...] = ()
    values: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of a group of jobs. JCT figures count finished jobs only; null: there is none."""

    jobs: int
    finished: int
    failed: int
    running: int
    waiting: int
    mean_jct_s: float | None
    quantiles_s: Annotated[dict[str, float], Field(description="JCT at the shares 0.05 to 0.99 of the jobs.")]
    mean_queueing_delay_s: float | None
    preemptions: int
    makespan_s: float | None
    mean_predicted_jct_s: Annotated[float | None, Field(description="Of the finished jobs that were predicted.")]
    mean_error: Annotated[float | None, Field(description="Mean of the jobs' (predicted - observed) / observed.")]
    median_abs_error: float | None
    jct_cdf: Annotated[Line, Field(description="JCT and the share of jobs that finished within it.")]
    predicted_cdf: Line


UNREPORTED = "?"
"""The index in place of devices that were held but not reported."""


def span_of(job: Job, run: JobRun, device: str) -> Span:
    return Span(device, job.uid, job.name, run.from_s, run.to_s, run.exact)


def held_by(job: Job, run: JobRun) -> tuple[str, ...]:
    """The devices of a run; if they weren't reported, as many placeholders that no other job has."""
    if run.devices:
        return run.devices
    count = (job.gpus or 0) // max(1, len(job.nodes))
    return tuple(f"{run.node}/{UNREPORTED}{job.uid}.{number}" for number in range(count))


def occupancy(jobs: Iterable[Job], runs: Runs, window: Window) -> list[Span]:
    """Which job held which device within the window, in order of device and time."""
    found = [
        span_of(job, run, device)
        for job in jobs
        for run in runs.get(job.uid, ())
        if run.from_s < window.until_s and (run.to_s is None or run.to_s > window.since_s)
        for device in run.devices or (f"{run.node}/{UNREPORTED}",)
    ]
    return sorted(found, key=lambda span: (place_order(span.device), span.from_s, span.job))


def queue_length(jobs: Iterable[Job], runs: Runs, window: Window, most: int = MOST_POINTS) -> Line:
    """How many submitted jobs held nothing. At most `most` points, each the highest value of its slice of time."""
    changes: dict[float, int] = {window.since_s: 0, window.until_s: 0}
    for job in jobs:
        for interval in _waits(job, runs.get(job.uid, ()), window):
            begin, end = window.clip(interval)
            if end > begin:
                changes[begin] = changes.get(begin, 0) + 1
                changes[end] = changes.get(end, 0) - 1
    return _line_of(changes, most) if window.until_s > window.since_s else Line()


def holding(jobs: Iterable[Job], runs: Runs, window: Window, most: int = MOST_POINTS) -> Line:
    """How many devices were held, each counted once however many jobs shared it."""
    by_device: dict[str, list[Interval]] = {}
    for job in jobs:
        for run in runs.get(job.uid, ()):
            for device in held_by(job, run):
                by_device.setdefault(device, []).append((run.from_s, _end(run, window.now_s)))
    changes: dict[float, int] = {window.since_s: 0, window.until_s: 0}
    for intervals in by_device.values():
        for interval in union(intervals):
            begin, end = window.clip(interval)
            if end > begin:
                changes[begin] = changes.get(begin, 0) + 1
                changes[end] = changes.get(end, 0) - 1
    return _line_of(changes, most) if window.until_s > window.since_s else Line()


def held_share(
    jobs: Iterable[Job], runs: Runs, devices: Iterable[str], window: Window, *, there_are: int = 0
) -> float | None:
    """The share of these devices' time in the window in which a job held them; None without devices or time.

    `there_are`: the number of devices, if more exist than are named.
    """
    length, known = window.until_s - window.since_s, set(devices)
    count = max(len(known), there_are)
    if not count or length <= 0:
        return None
    by_device: dict[str, list[Interval]] = {}
    for job in jobs:
        for run in runs.get(job.uid, ()):
            for device in held_by(job, run) if not run.devices else known.intersection(run.devices):
                by_device.setdefault(device, []).append(window.clip((run.from_s, _end(run, window.now_s))))
    held = sum(end - begin for intervals in by_device.values() for begin, end in union(intervals))
    return held / (length * count)


def summarised(jobs: Iterable[Job]) -> Summary:
    """The figures of these jobs."""
    every = list(jobs)
    done = [job for job in every if job.phase == "Succeeded" and job.jct_s is not None]
    jcts = sorted(job.jct_s for job in done if job.jct_s is not None)
    predicted = [job.predicted_jct_s for job in done if job.predicted_jct_s is not None]
    errors = [job.error for job in done if job.error is not None]
    ends = [job.finished_s for job in every if job.finished_s is not None]
    all_ended = bool(every) and all(job.phase in FINAL for job in every) and bool(ends)
    first = min((job.submitted_s for job in every), default=0.0)
    return Summary(
        jobs=len(every),
        finished=len(done),
        failed=sum(job.phase == "Failed" for job in every),
        running=sum(job.phase in HOLDING for job in every),
        waiting=sum(job.phase not in (*HOLDING, *FINAL) for job in every),
        mean_jct_s=mean(jcts),
        quantiles_s={f"{share:g}": value for share in QUANTILES if (value := quantile(jcts, share)) is not None},
        mean_queueing_delay_s=mean([job.queueing_delay_s for job in done if job.queueing_delay_s is not None]),
        preemptions=sum(job.preemptions for job in every),
        makespan_s=max(ends) - first if all_ended else None,
        mean_predicted_jct_s=mean(predicted),
        mean_error=mean(errors),
        median_abs_error=quantile(sorted(abs(error) for error in errors), 0.5),
        jct_cdf=cumulative(jcts),
        predicted_cdf=cumulative(predicted),
    )


def whole_window(snapshot: Snapshot, jobs: Sequence[Job]) -> Window:
    """From the first submission to the last end, or until now if a job has not ended."""
    since = min((job.submitted_s for job in jobs), default=snapshot.now_s)
    going = any(job.phase not in ENDED for job in jobs)
    ends = [job.finished_s for job in jobs if job.finished_s is not None]
    until = snapshot.now_s if going or not ends else max(ends)
    return Window(since, max(since, until), snapshot.now_s)


def cumulative(values: Iterable[float], most: int = MOST_POINTS) -> Line:
    """The empirical distribution as a step line: values in order and the share that is at most that; starts at 0."""
    ordered = sorted(values)
    if not ordered:
        return Line()
    last = len(ordered) - 1
    picks = range(last + 1) if last < most else sorted({round(i * last / (most - 1)) for i in range(most)})
    return Line((ordered[0], *(ordered[i] for i in picks)), (0.0, *(round((i + 1) / len(ordered), 6) for i in picks)))


def mean(values: Sequence[float]) -> float | None:
    """The arithmetic mean; None without values."""
    return sum(values) / len(values) if values else None


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """The quantile at `share` (0 to 1) of ordered values, linear between the two nearest ranks; None without values.

    Type 7 of Hyndman and Fan, "Sample Quantiles in Statistical Packages" (1996), as in the reports.
    """
    if not ordered:
        return None
    place = share * (len(ordered) - 1)
    low = floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def error_of(predicted_s: float | None, observed_s: float | None) -> float | None:
    """(predicted - observed) / observed; None if either is unknown or the observation is 0."""
    if predicted_s is None or not observed_s:
        return None
    return (predicted_s - observed_s) / observed_s


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The intervals merged where they overlap or touch, in order; empty ones are dropped."""
    merged: list[Interval] = []
    for begin, end in sorted(interval for interval in intervals if interval[1] > interval[0]):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _waits(job: Job, runs: Sequence[JobRun], window: Window) -> Iterable[Interval]:
    end = job.finished_s if job.finished_s is not None else window.now_s
    if job.phase == "Rejected":
        return
    since = job.submitted_s
    for begin, stop in union((run.from_s, _end(run, window.now_s)) for run in runs):
        if min(begin, end) > since:
            yield since, min(begin, end)
        since = max(since, stop)
    if since < end:
        yield since, end


def _end(run: JobRun, now_s: float) -> float:
    return run.to_s if run.to_s is not None else max(now_s, run.from_s)


def _line_of(changes: Mapping[float, int], most: int) -> Line:
    times, values, now = sorted(changes), [], 0
    for time in times:
        now += changes[time]
        values.append(float(now))
    return Line(tuple(times), tuple(values)) if len(times) <= most else _highest(times, values, most)


def _highest(times: Sequence[float], values: Sequence[float], slices: int) -> Line:
    width = (times[-1] - times[0]) / slices
    starts = [times[0] + piece * width for piece in range(slices)]
    tops, now, index = [], 0.0, 0
    for _, end in pairwise([*starts, inf]):
        top = now
        while index < len(times) and times[index] < end:
            now = values[index]
            top = max(top, now)
            index += 1
        tops.append(top)
    return Line((*starts, times[-1]), (*tops, now))
