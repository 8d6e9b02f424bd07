"""One steady step as a chart: what host, compute units, copies and collectives of each rank do.

A step has up to a million kernels. What follows each other closely is drawn as one box, which says how many there are and how
much of it they fill.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from emugpu.prediction.report_charts import COLOURS
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.prediction.estimators import COMPUTE, demangled
from emulator_runtime.prediction.intervals import Interval, union, within, without
from emulator_runtime.prediction.prediction import COMMUNICATION, COPIES, HOST, PEERS
from emulator_runtime.prediction.records import Collective, Copy, HostFunction, Launch
from emulator_runtime.prediction.simulation import RankRun
from scheduler_sims.reports.page.palette import plotly_text, short_name
from scheduler_sims.reports.page.series import short

MOST_BOXES = 3000
_LANES = ("host", "compute", "copies", "collectives")
_CLOSE = 1 / 2000
"""Of the step: less than a pixel."""
_WAIT = "waits for ranks"
_COLOURS = {"host": COLOURS[HOST], "compute": COLOURS[COMPUTE], "copies": COLOURS[COPIES]} | {
    "collectives": COLOURS[COMMUNICATION],
    _WAIT: COLOURS[PEERS],
}


@dataclass(frozen=True, slots=True)
class Box:
    """Work of a lane, one after the other. `busy_ns`: how much of it is work. `name`: of what takes most of it."""

    lane: str
    kind: str
    start_ns: int
    end_ns: int
    count: int
    busy_ns: int
    name: str


@dataclass(frozen=True, slots=True)
class _Span:
    start_ns: int
    end_ns: int
    name: str


def step_figure(runs: Sequence[RankRun], step_ns: Interval) -> tuple[dict[str, Any], int]:
    """A plotly figure as plain JSON values, and how many boxes stand for several pieces of work."""
    most = max(50, MOST_BOXES // (len(_LANES) * max(1, len(runs))))
    boxes = [(number, box) for number, run in enumerate(runs) for box in boxes_of(run, step_ns, most)]
    begin_ns = step_ns[0]
    lanes = len(runs) * len(_LANES)
    places = [number * (len(_LANES) + 0.5) + _LANES.index(box.lane) for number, box in boxes]
    figure = {
        "data": [
            {
                "type": "bar",
                "orientation": "h",
                "y": places,
                "width": 0.82,
                "base": [_ms(box.start_ns - begin_ns) for _, box in boxes],
                "x": [_ms(box.end_ns - box.start_ns) for _, box in boxes],
                "customdata": [[_ms(box.start_ns - begin_ns), _ms(box.end_ns - begin_ns)] for _, box in boxes],
                "hovertext": [_hover(runs[number].trace.rank, box) for number, box in boxes],
                "hovertemplate": "%{hovertext}<br>%{customdata[0]:,} – %{customdata[1]:,} ms<extra></extra>",
                "marker": {"color": [_COLOURS[box.kind] for _, box in boxes], "line": {"width": 0}},
            }
        ],
        "layout": {
            "height": round(120 + 22 * max(4, lanes + 0.5 * len(runs))),
            "bargap": 0,
            "barmode": "overlay",
            "showlegend": False,
            "hovermode": "closest",
            "xaxis": {
                "title": {"text": "milliseconds since the step's begin"},
                "range": [0, _ms(step_ns[1] - begin_ns) or 1],
            },
            "yaxis": {
                "range": [len(runs) * (len(_LANES) + 0.5) - 0.9, -0.7],
                "tickmode": "array",
                "tickvals": [n * (len(_LANES) + 0.5) + lane for n in range(len(runs)) for lane in range(len(_LANES))],
                "ticktext": [
                    f"<b>rank {run.trace.rank}</b>  {name}" if name == _LANES[0] else name
                    for run in runs
                    for name in _LANES
                ],
                "showgrid": False,
                "zeroline": False,
                "fixedrange": True,
            },
            "margin": {"l": 10, "r": 24, "t": 20, "b": 50},
        },
    }
    return figure, sum(box.count > 1 for _, box in boxes)


def boxes_of(run: RankRun, step_ns: Interval, most: int) -> Iterator[Box]:
    """Of a rank, by lane and time; at most so many a lane and kind."""
    for lane, kind, spans in _spans(run, step_ns):
        yield from _merged(lane, kind, sorted(spans, key=lambda span: (span.start_ns, span.end_ns)), step_ns, most)


def _spans(run: RankRun, step_ns: Interval) -> Iterator[tuple[str, str, list[_Span]]]:
    waits = union(within(zip(run.host_waits.starts_ns, run.host_waits.ends_ns, strict=True), *step_ns))
    yield "host", "host", [_Span(*busy, "host") for busy in without([step_ns], waits)]
    found: dict[str, list[_Span]] = {"host": [], "compute": [], "copies": []}
    work = run.device_work
    for index, start_ns, end_ns in _in_step(zip(work.records, work.starts_ns, work.ends_ns, strict=True), step_ns):
        record = run.trace.records[index]
        if isinstance(record, Launch):
            found["compute"].append(_Span(start_ns, end_ns, record.work.name))
        elif isinstance(record, Copy):
            found["copies"].append(_Span(start_ns, end_ns, f"copy of {record.bytes:,} bytes"))
        else:
            assert isinstance(record, HostFunction)
            found["host"].append(_Span(start_ns, end_ns, "host function"))
    for lane, spans in found.items():
        yield lane, lane, spans
    calls = run.collectives
    waiting = zip(calls.records, run.arrivals_ns, calls.starts_ns, strict=True)
    yield "collectives", _WAIT, [_Span(a, b, _call(run, index)) for index, a, b in _in_step(waiting, step_ns)]
    running = zip(calls.records, calls.starts_ns, calls.ends_ns, strict=True)
    yield "collectives", "collectives", [_Span(a, b, _call(run, index)) for index, a, b in _in_step(running, step_ns)]


def _in_step(spans: Iterable[tuple[int, int, int]], step_ns: Interval) -> Iterator[tuple[int, int, int]]:
    begin_ns, end_ns = step_ns
    for index, start, end in spans:
        if end > begin_ns and start < end_ns and end > start:
            yield index, max(start, begin_ns), min(end, end_ns)


def _call(run: RankRun, index: int) -> str:
    record = run.trace.records[index]
    assert isinstance(record, Collective)
    return f"{record.operation} of {record.bytes:,} bytes" if record.bytes else record.operation


def _merged(lane: str, kind: str, spans: Sequence[_Span], step_ns: Interval, most: int) -> list[Box]:
    """`spans` are in order. If too many are apart from each other, the step is divided into cells, each with one box at most."""
    begin_ns, length_ns = step_ns[0], max(1, step_ns[1] - step_ns[0])
    groups: list[list[_Span]] = []
    end_ns = 0
    for span in spans:
        if groups and span.start_ns - end_ns <= length_ns * _CLOSE:
            groups[-1].append(span)
        else:
            groups.append([span])
        end_ns = max(end_ns, span.end_ns) if len(groups[-1]) > 1 else span.end_ns
    if len(groups) > most:
        cells: defaultdict[int, list[_Span]] = defaultdict(list)
        for group in groups:
            cells[(group[0].start_ns - begin_ns) * most // length_ns].extend(group)
        groups = list(cells.values())
    return [_box(lane, kind, group) for group in groups]


def _box(lane: str, kind: str, spans: Sequence[_Span]) -> Box:
    times: Counter[str] = Counter()
    for span in spans:
        times[span.name] += span.end_ns - span.start_ns
    busy_ns = sum(end - start for start, end in union((span.start_ns, span.end_ns) for span in spans))
    end_ns = max(span.end_ns for span in spans)
    return Box(lane, kind, spans[0].start_ns, end_ns, len(spans), busy_ns, times.most_common(1)[0][0])


def _hover(rank: int, box: Box) -> str:
    title = plotly_text(short_name(demangled(box.name), 80))
    several = f"<br>{box.count:,} pieces, {box.busy_ns / max(1, box.end_ns - box.start_ns):.0%} busy; most: {title}"
    what = box.kind if box.kind != "collectives" else "collective"
    return f"<b>rank {rank}: {what}</b>" + (several if box.count > 1 else f"<br>{title}")


def _ms(time_ns: int) -> float:
    return short(time_ns / NS_PER_S * 1000)
