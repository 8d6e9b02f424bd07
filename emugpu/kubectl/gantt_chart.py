"""A Gantt chart in the characters of a terminal: a row per device or per job, time from left to right.

worker1/0  ├bert-1─────┤├res-2──────────▶      71%
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil, floor
from operator import itemgetter

from rich.cells import cell_len
from rich.text import Text

from emugpu.kubectl.job_views import JobView
from emugpu.kubectl.output import PHASE_STYLES, duration
from emugpu.kubectl.spans import Places, Window, clipped, spans_of
from emugpu.smi.devices import clean
from operators.objects.names import FINAL
from scheduler_sims.record import Span
from scheduler_sims.reports.metrics import union
from scheduler_sims.reports.page.gantt import Row, bars_by_row

LEAST_WIDTH = 40
_TICK_STEPS_S = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0),
    *(86400.0 * days for days in (1, 2, 5, 10, 30, 100, 365)),
)


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters of bars. `one`: a bar of one column."""

    left: str
    fill: str
    right: str
    on: str
    one: str
    wait: str
    tick: str


BOXES = Glyphs("├", "─", "┤", "▶", "│", "·", "╵")
ASCII = Glyphs("[", "-", "]", ">", "|", ".", "'")


@dataclass(frozen=True, slots=True)
class Bar:
    """From `begin_s` to `end_s`, seconds since the chart's beginning. `on`: it is still running; `waits`: the job holds
    nothing."""

    name: str
    begin_s: float
    end_s: float
    style: str = ""
    on: bool = False
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A row; its bars don't overlap. `note` stands at its right end."""

    label: str
    bars: tuple[Bar, ...]
    note: str = ""
    note_style: str = ""


def draw(lines: Sequence[Line], length_s: float, width: int, glyphs: Glyphs = BOXES) -> list[Text]:
    """The chart, `width` columns wide (LEAST_WIDTH for the bars at least), with an axis of `length_s` seconds above it."""
    labels = [clean(line.label) for line in lines]
    notes = [clean(line.note) for line in lines]
    label_width = max(map(cell_len, labels), default=0)
    note_width = max(map(cell_len, notes), default=0)
    columns = max(LEAST_WIDTH, width - label_width - note_width - 4)
    drawn = [_axis(length_s, columns, label_width + 2, glyphs)]
    for line, label, note in zip(lines, labels, notes, strict=True):
        text = Text(label + " " * (label_width - cell_len(label) + 2), no_wrap=True)
        text.append_text(_bars(line.bars, length_s, columns, glyphs))
        text.append("  " + " " * (note_width - cell_len(note))).append(note, line.note_style)
        text.rstrip()
        drawn.append(text)
    return drawn


def ticks(length_s: float, columns: int) -> list[float]:
    """Round times from 0 on, at least twelve columns apart."""
    most = max(1, columns // 12)
    step = next((step for step in _TICK_STEPS_S if length_s / step <= most), length_s)
    return [number * step for number in range(floor(length_s / step + 1e-9) + 1)]


def clock(at_s: float, longest_s: float) -> str:
    """A time on an axis that ends with `longest_s`: 2.5s, 12:05 (minutes), 3:07:00 (hours), 2d 05h."""
    if longest_s < 120:
        return f"{at_s:.6g}s"
    whole = round(at_s)
    if longest_s < 7200:
        return f"{whole // 60}:{whole % 60:02}"
    if longest_s < 3 * 86400:
        return f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02}"
    return f"{whole // 86400}d {whole % 86400 // 3600:02}h"


def _axis(length_s: float, columns: int, indent: int, glyphs: Glyphs) -> Text:
    line = [" "] * (columns + 12)
    for at_s in ticks(length_s, columns):
        column = min(columns - 1, floor(at_s / length_s * columns))
        line[column : column + 1 + len(clock(at_s, length_s))] = glyphs.tick + clock(at_s, length_s)
    return Text(" " * indent + "".join(line).rstrip(), "dim", no_wrap=True)


def _bars(bars: Sequence[Bar], length_s: float, columns: int, glyphs: Glyphs) -> Text:
    """Each bar has one column at least; of two bars in the same column the later one is shown."""
    cells: list[tuple[str, str]] = [(" ", "")] * columns
    for bar in sorted(bars, key=lambda bar: (not bar.waits, bar.begin_s)):
        begin = min(columns - 1, floor(bar.begin_s / length_s * columns))
        end = max(begin + 1, min(columns, ceil(bar.end_s / length_s * columns - 1e-9)))
        for column, sign in enumerate(_signs(bar, end - begin, glyphs), begin):
            cells[column] = sign, bar.style
    text = Text(no_wrap=True)
    for style, signs in groupby(cells, key=itemgetter(1)):
        text.append("".join(sign for sign, _ in signs), style)
    return text


def _signs(bar: Bar, length: int, glyphs: Glyphs) -> str:
    if bar.waits:
        return glyphs.wait * length
    end = glyphs.on if bar.on else glyphs.right
    if length == 1:
        return glyphs.on if bar.on else glyphs.one
    room = length - 2
    name = "".join(sign if sign.isascii() else "?" for sign in clean(bar.name))[:room]
    return glyphs.left + name + glyphs.fill * (room - len(name)) + end


def styles(jobs: Sequence[str], colours: Sequence[str]) -> Mapping[str, str]:
    """A background for each job, by its position among all jobs."""
    return {job: f"white on {colours[place % len(colours)]}" for place, job in enumerate(jobs)}


def by_device(
    jobs: Sequence[JobView], places: Places, window: Window, styles: Mapping[str, str], *, idle: bool
) -> list[Line]:
    """A line per device that was held (with `idle` per device), several for a shared one; the note is the share of time held."""
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


def by_job(jobs: Sequence[JobView], window: Window, styles: Mapping[str, str]) -> list[Line]:
    """A line per job from its submission; the note is its phase and its duration so far."""
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


def _bar(span: Span, jobs: Mapping[str, JobView], window: Window, styles: Mapping[str, str]) -> Bar:
    on = span.end_s >= window.length_s and jobs[span.job_id].phase not in FINAL
    return Bar(span.job_id, span.start_s, span.end_s, styles.get(span.job_id, ""), on=on)


def _goes_on(job: JobView, to_s: float | None) -> bool:
    return to_s is None and job.phase not in FINAL


def _device_name(row: Row, jobs: Sequence[JobView]) -> str:
    """Its index; without one, `cpu` for jobs that need no device and `?` if the device is unknown."""
    if row[1] is not None:
        return str(row[1])
    return "?" if any(job.gpus for job in jobs) else "cpu"
