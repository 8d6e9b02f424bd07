"""Gantt charts of devices: one row for each device or CPU node, in the same order for all runs so that they can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from scheduler_sims.record import RunRecord, Span
from scheduler_sims.reports.page.palette import FAILED_COLOUR, JOB_COLOURS, plotly_text
from scheduler_sims.reports.page.series import TimeScale

Row = tuple[str, int | None]

MOST_BARS = 6000
"""Maximum number of bars in a chart; more make browsers slow. The longest are drawn, and the caption has the rest's number."""
MOST_LABELLED = 400
ROW_HEIGHT_PX = 22
MOST_LANES_HEIGHT = 4.0


@dataclass(frozen=True, slots=True)
class Bar:
    """A span in its row; jobs that hold the same device or node at the same time are in different lanes."""

    span: Span
    lane: int


def rows_of(runs: Iterable[RunRecord]) -> list[Row]:
    """Every device from index 0 to the highest one that any run used, and CPUs if used; nodes in the cluster's order.

    Records don't list devices, so devices with a higher index than any that was used have no row.
    """
    top: dict[str, int] = {}
    cpus: set[str] = set()
    for run in runs:
        for node in run.nodes:
            top.setdefault(node, -1)
        for span in run.spans:
            if span.device is None:
                cpus.add(span.node)
            top[span.node] = max(top.get(span.node, -1), -1 if span.device is None else span.device)
    rows: list[Row] = []
    for node, last in top.items():
        rows.extend((node, index) for index in range(last + 1))
        rows.extend([(node, None)] if node in cpus else [])
    return rows


def bars_by_row(spans: Iterable[Span]) -> dict[Row, list[Bar]]:
    """The bars of each row. Adjacent spans of a job are joined; each bar is in the lowest free lane."""
    by_row: dict[Row, list[Span]] = {}
    for span in sorted(spans, key=attrgetter("start_s", "end_s", "job_id")):
        by_row.setdefault((span.node, span.device), []).append(span)
    return {row: _in_lanes(_joined(own)) for row, own in by_row.items()}


def gantt_figure(
    run: RunRecord, rows: Sequence[Row], longest_s: float, packed: Mapping[Row, Sequence[Bar]]
) -> dict[str, Any]:
    """A plotly figure as plain JSON values; the time axis ends at `longest_s`. `packed`: the run's `bars_by_row`."""
    scale = TimeScale.for_longest(longest_s)
    places = _places(rows, packed)
    drawn = [(places[row], bar) for row, bars in packed.items() for bar in bars]
    drawn = sorted(drawn, key=lambda item: item[1].span.start_s - item[1].span.end_s)[:MOST_BARS]
    height = places[rows[-1]].bottom if rows else 1.0
    return {
        "data": [_bars(run, drawn, scale)],
        "layout": {
            "height": round(110 + max(2.0, height) * ROW_HEIGHT_PX),
            "bargap": 0,
            "uniformtext": {"mode": "hide", "minsize": 9},
            "barmode": "overlay",
            "showlegend": False,
            "hovermode": "closest",
            "xaxis": {
                "title": {"text": f"emulated time since the run's start ({scale.unit})"},
                "range": [0, scale.of(longest_s) or 1],
            },
            "yaxis": {
                "title": {"text": "node / device", "standoff": 12},
                "range": [height, 0],
                "tickmode": "array",
                "tickvals": [places[row].middle for row in rows],
                "ticktext": [plotly_text(row_name(row)) for row in rows],
                "showgrid": False,
                "zeroline": False,
                "fixedrange": True,
            },
            "margin": {"l": 10, "r": 24, "t": 30, "b": 50},
        },
    }


def row_name(row: Row) -> str:
    """NODE/INDEX or NODE/cpu, as in jobs.csv."""
    return f"{row[0]}/{'cpu' if row[1] is None else row[1]}"


def drawn_share(packed: Mapping[Row, Sequence[Bar]]) -> tuple[int, int]:
    """The number of bars in the chart, and the number of all bars."""
    bars = sum(len(own) for own in packed.values())
    return min(bars, MOST_BARS), bars


@dataclass(frozen=True, slots=True)
class _Place:
    top: float
    bottom: float
    lanes: int

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2

    @property
    def lane_height(self) -> float:
        return (self.bottom - self.top) * 0.86 / self.lanes

    def lane_middle(self, lane: int) -> float:
        return self.middle + (lane - (self.lanes - 1) / 2) * self.lane_height


def _places(rows: Sequence[Row], packed: Mapping[Row, Sequence[Bar]]) -> dict[Row, _Place]:
    places: dict[Row, _Place] = {}
    top = 0.0
    for row in rows:
        lanes = 1 + max((bar.lane for bar in packed.get(row, ())), default=0)
        bottom = top + min(MOST_LANES_HEIGHT, 1 + (lanes - 1) * 0.6)
        places[row] = _Place(top, bottom, lanes)
        top = bottom
    return places


def _bars(run: RunRecord, drawn: list[tuple[_Place, Bar]], scale: TimeScale) -> dict[str, Any]:
    jobs = {job.job_id: (position, job) for position, job in enumerate(run.jobs)}
    colours, labels, hovers = {}, {}, {}
    for job_id in dict.fromkeys(bar.span.job_id for _, bar in drawn):
        labels[job_id] = plotly_text(job_id)
        if job_id not in jobs:
            colours[job_id], hovers[job_id] = FAILED_COLOUR, labels[job_id]
            continue
        position, job = jobs[job_id]
        failed = job.status == "failed"
        colours[job_id] = FAILED_COLOUR if failed else JOB_COLOURS[position % len(JOB_COLOURS)]
        hovers[job_id] = f"<b>{labels[job_id]}</b>{' (failed)' if failed else ''}<br>user {plotly_text(job.user)}"
    spans = [bar.span for _, bar in drawn]
    starts = [scale.of(span.start_s) for span in spans]
    unit = scale.unit
    return {
        "type": "bar",
        "orientation": "h",
        "y": [round(place.lane_middle(bar.lane), 3) for place, bar in drawn],
        "width": [round(place.lane_height, 3) for place, _ in drawn],
        "base": starts,
        "x": [scale.of(span.end_s - span.start_s) for span in spans],
        "customdata": [[start, scale.of(span.end_s)] for start, span in zip(starts, spans, strict=True)],
        "hovertext": [hovers[span.job_id] for span in spans],
        "hovertemplate": f"%{{hovertext}}<br>%{{customdata[0]:,}} – %{{customdata[1]:,}} {unit}<extra></extra>",
        "marker": {
            "color": [colours[span.job_id] for span in spans],
            "line": {"width": 1 if len(spans) <= MOST_LABELLED else 0},
        },
        **_labels([labels[span.job_id] for span in spans]),
    }


def _labels(names: list[str]) -> dict[str, Any]:
    if len(names) > MOST_LABELLED:
        return {}
    return {
        "text": names,
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "insidetextfont": {"color": "#ffffff", "size": 10},
    }


def _joined(spans: list[Span]) -> list[Span]:
    """Join adjacent spans of a job. `spans` are ordered by start."""
    joined: list[Span] = []
    open_at: dict[str, int] = {}
    for span in spans:
        at = open_at.get(span.job_id)
        if at is not None and span.start_s <= joined[at].end_s:
            before = joined[at]
            joined[at] = Span(span.job_id, span.node, span.device, before.start_s, max(before.end_s, span.end_s))
        else:
            open_at[span.job_id] = len(joined)
            joined.append(span)
    return joined


def _in_lanes(spans: list[Span]) -> list[Bar]:
    free_at: list[float] = []
    bars = []
    for span in spans:
        lane = next((i for i, end in enumerate(free_at) if end <= span.start_s), len(free_at))
        if lane == len(free_at):
            free_at.append(span.end_s)
        else:
            free_at[lane] = span.end_s
        bars.append(Bar(span, lane))
    return bars
