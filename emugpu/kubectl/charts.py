"""The two charts of `gantt`: who had which device when, and what each job waited for and had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from emugpu.kubectl.chart import Bar, Line
from emugpu.kubectl.jobs_seen import OVER, JobSeen
from emugpu.kubectl.output import PHASE_STYLES, duration
from emugpu.kubectl.spans import Places, Window, clipped, spans_of
from scheduler_sims.record import Span
from scheduler_sims.reports.gantt import Row, bars_by_row
from scheduler_sims.reports.metrics import union


def by_device(
    jobs: Sequence[JobSeen], places: Places, window: Window, styles: Mapping[str, str], *, idle: bool
) -> list[Line]:
    """A line per device that was held (with `idle` per device), several where it was shared; the note is its held share."""
    spans, known = spans_of(jobs, places, window), {job.key: job for job in jobs}
    packed = bars_by_row(spans)
    rows: set[Row] = {*packed, *(places.by_uuid.values() if idle else ())}
    lines = []
    for row in sorted(rows, key=lambda row: (row[0], row[1] is None, row[1] or 0)):
        bars = packed.get(row, [])
        held_s = sum(end - begin for begin, end in union((bar.span.start_s, bar.span.end_s) for bar in bars))
        label = f"{row[0]}/{_device_name(row, [known[bar.span.job_id] for bar in bars])}"
        for lane in range(max((bar.lane for bar in bars), default=0) + 1):
            own = tuple(_bar(bar.span, known, window, styles) for bar in bars if bar.lane == lane)
            note = "" if lane else f"{100 * held_s / window.length_s:.0f}%"
            lines.append(Line("" if lane else label, own, note))
    return lines


def by_job(jobs: Sequence[JobSeen], window: Window, styles: Mapping[str, str]) -> list[Line]:
    """A line per job from its submission; the note is its phase, and how long it took or takes."""
    lines = []
    for job in jobs:
        submit_s = max(0.0, (job.submitted_s or window.begin_s) - window.begin_s)
        end_s = (job.finished_s if job.finished_s is not None else window.end_s) - window.begin_s
        if end_s < 0 or submit_s > window.length_s:
            continue
        runs = clipped(job, window)
        bars = [Bar("", submit_s, min(end_s, window.length_s), "dim", waits=True)]
        bars += [
            Bar(f"{run.node}", begin_s, until_s, styles.get(job.key, ""), on=_goes_on(job, run.to_s))
            for run, begin_s, until_s in runs
        ]
        took_s = job.observed_jct_s if job.observed_jct_s is not None else job.age_s(window.end_s)
        note = " ".join(filter(None, (job.phase, "" if took_s is None else duration(took_s))))
        lines.append(Line(job.key, tuple(bars), note, PHASE_STYLES.get(job.phase, "")))
    return lines


def _bar(span: Span, jobs: Mapping[str, JobSeen], window: Window, styles: Mapping[str, str]) -> Bar:
    on = span.end_s >= window.length_s and jobs[span.job_id].phase not in OVER
    return Bar(span.job_id, span.start_s, span.end_s, styles.get(span.job_id, ""), on=on)


def _goes_on(job: JobSeen, to_s: float | None) -> bool:
    return to_s is None and job.phase not in OVER


def _device_name(row: Row, jobs: Sequence[JobSeen]) -> str:
    """Its index; without one, `cpu` for jobs that need no device, `?` where the device isn't known."""
    if row[1] is not None:
        return str(row[1])
    return "?" if any(job.gpus for job in jobs) else "cpu"
