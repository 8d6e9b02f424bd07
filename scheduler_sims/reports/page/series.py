"""Converts records to the points of lines, with a limited number of points so that pages with thousands of jobs stay small."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf

from scheduler_sims.record import RunRecord
from scheduler_sims.reports.metrics import Interval, union

MOST_POINTS = 600
"""Maximum number of points of a line; more can't be distinguished on a screen."""


@dataclass(frozen=True, slots=True)
class TimeScale:
    """The unit of a time axis: its name and its length in seconds."""

    unit: str
    seconds: float

    @classmethod
    def for_longest(cls, longest_s: float) -> TimeScale:
        """Seconds for at most two hours, hours for at most eight days, days for more."""
        if longest_s <= 7200:
            return cls("s", 1.0)
        return cls("h", 3600.0) if longest_s <= 8 * 86400 else cls("days", 86400.0)

    def of(self, seconds: float) -> float:
        """Convert seconds to this unit, with six significant digits, as many as a chart can show."""
        return short(seconds / self.seconds)


def short(value: float) -> float:
    """Six significant digits, which keeps the page small: 0.3 instead of 0.30000000000000004."""
    return float(f"{value:.6g}")


def cumulative(values: Iterable[float], most: int = MOST_POINTS) -> tuple[list[float], list[float]]:
    """The empirical distribution as a step line that starts at 0: sorted values, and the share of values up to each."""
    ordered = sorted(values)
    if not ordered:
        return [], []
    last = len(ordered) - 1
    picks = range(len(ordered)) if last < most else sorted({round(i * last / (most - 1)) for i in range(most)})
    return [ordered[0], *(ordered[i] for i in picks)], [0.0, *(short((i + 1) / len(ordered)) for i in picks)]


def queue_length(run: RunRecord, most: int = MOST_POINTS) -> tuple[list[float], list[int]]:
    """The number of jobs that wait (submitted, not ended, without an allocation) over time in seconds, as a step line.

    If there are more than `most` steps, time is divided into `most` slices, and each shows its longest queue.
    """
    changes: dict[float, int] = {}
    for start, end in _waits(run):
        changes[start] = changes.get(start, 0) + 1
        changes[end] = changes.get(end, 0) - 1
    for job in run.jobs:  # so that the line covers the whole run, even if no job waits
        changes.setdefault(job.submit_s, 0)
        changes.setdefault(job.finish_s, 0)
    times, lengths, now = [], [], 0
    for time in sorted(changes):
        now += changes[time]
        times.append(time)
        lengths.append(now)
    return (times, lengths) if len(times) <= most else _highest(times, lengths, most)


def gpus_held(run: RunRecord) -> tuple[list[float], dict[str, list[int]]]:
    """How many GPUs each job holds over time in seconds, as step lines with common times; jobs in order of the workload."""
    changes: dict[str, dict[float, int]] = {job.job_id: {} for job in run.jobs}
    for span in run.spans:
        if span.device is not None and span.end_s > span.start_s:
            own = changes.setdefault(span.job_id, {})
            own[span.start_s] = own.get(span.start_s, 0) + 1
            own[span.end_s] = own.get(span.end_s, 0) - 1
    times = sorted({time for own in changes.values() for time in own})
    return times, {job_id: list(accumulate(own.get(time, 0) for time in times)) for job_id, own in changes.items()}


def _waits(run: RunRecord) -> Iterable[Interval]:
    held: dict[str, list[Interval]] = {}
    for span in run.spans:
        held.setdefault(span.job_id, []).append((span.start_s, span.end_s))
    for job in run.jobs:
        since = job.submit_s
        for start, end in union(held.get(job.job_id, ())):
            until = min(start, job.finish_s)
            if until > since:
                yield since, until
            since = max(since, end)
        if since < job.finish_s:
            yield since, job.finish_s


def _highest(times: Sequence[float], lengths: Sequence[int], slices: int) -> tuple[list[float], list[int]]:
    width = (times[-1] - times[0]) / slices
    starts = [times[0] + piece * width for piece in range(slices)]
    tops, now, index = [], 0, 0
    for end in [*starts[1:], inf]:
        top = now
        while index < len(times) and times[index] < end:
            now = lengths[index]
            top = max(top, now)
            index += 1
        tops.append(top)
    return [*starts, times[-1]], [*tops, now]
