"""Charts that don't depend on runs: distributions, bars, and lines with error bars, as plotly figures in plain JSON values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scheduler_sims.reports.page.charts import Figure, framed, log_note, time_axis
from scheduler_sims.reports.page.palette import plotly_text, short_name
from scheduler_sims.reports.page.series import TimeScale, cumulative, short

HEIGHT = 360


def times_cdf(values_s: Mapping[str, Sequence[float]], colours: Mapping[str, str], title: str, share: str) -> Figure:
    """A step line for each name: the share of its times up to each. `title`: of the time axis, without its unit."""
    flat = [value for values in values_s.values() for value in values]
    scale = TimeScale.for_longest(max(flat, default=0.0))
    data: list[Figure] = []
    for name, values in values_s.items():
        times, shares = cumulative(values)
        x = [scale.of(time) for time in times]
        data.append(_trace(name, colours[name], x, shares) | {"mode": "lines"})
        data[-1]["line"] |= {"shape": "hv"}
        data[-1]["hovertemplate"] = f"%{{y:.0%}} within %{{x}} {scale.unit}<extra>%{{fullData.name}}</extra>"
    axis = {"title": {"text": f"{title} ({scale.unit}{log_note(flat)})"}, **time_axis(flat, scale)}
    figure = framed(data, HEIGHT, axis, {"title": {"text": share}, "range": [0, 1.01], "tickformat": ".0%"})
    figure["layout"]["showlegend"] = len(values_s) > 1
    return figure


def bars(
    names: Sequence[str], values: Mapping[str, Sequence[float]], colours: Mapping[str, str], titles: tuple[str, str]
) -> Figure:
    """Groups of bars: a group for each of `names`, a bar in it for each series of `values`. `titles`: of both axes."""
    data: list[Figure] = [
        {"type": "bar", "name": plotly_text(series), "x": [plotly_text(short_name(name)) for name in names]}
        | {"y": [short(value) for value in heights], "marker": {"color": colours[series]}}
        for series, heights in values.items()
    ]
    axis = {"title": {"text": titles[0]}, "type": "category"}
    figure = framed(data, HEIGHT, axis, {"title": {"text": titles[1]}, "rangemode": "tozero"})
    figure["layout"] |= {"barmode": "group", "showlegend": len(values) > 1}
    return figure


@dataclass(frozen=True, slots=True)
class Points:
    """A line: `y` at `x`, each with half the width of its interval (`error`; 0: none)."""

    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float] = ()


def lines(
    series: Mapping[str, Points], colours: Mapping[str, str], titles: tuple[str, str], *, share: bool = False
) -> Figure:
    """A line with points for each name, and error bars where there are errors. `share`: the values are parts of 1."""
    data: list[Figure] = []
    for name, points in series.items():
        trace = _trace(name, colours[name], points.x, points.y) | {"mode": "lines+markers"}
        if any(points.error):
            trace["error_y"] = {"type": "data", "array": [short(value) for value in points.error], "thickness": 1.2}
        data.append(trace)
    axis: Figure = {"title": {"text": titles[1]}, "rangemode": "tozero"} | ({"tickformat": ".0%"} if share else {})
    return framed(data, HEIGHT, {"title": {"text": titles[0]}}, axis)


def steps(x: Sequence[float], y: Sequence[float], colour: str, titles: tuple[str, str]) -> Figure:
    """One filled step line, such as an amount in each hour."""
    trace = _trace(titles[1], colour, x, y) | {"mode": "lines", "fill": "tozeroy"}
    trace["line"] |= {"shape": "hv", "width": 1}
    figure = framed([trace], 260, {"title": {"text": titles[0]}}, {"title": {"text": titles[1]}, "rangemode": "tozero"})
    figure["layout"]["showlegend"] = False
    return figure


def _trace(name: str, colour: str, x: Sequence[float], y: Sequence[float]) -> Figure:
    points: dict[str, Any] = {"x": [short(value) for value in x], "y": [short(value) for value in y]}
    return {"type": "scatter", "name": plotly_text(short_name(name)), "line": {"color": colour, "width": 2}, **points}
