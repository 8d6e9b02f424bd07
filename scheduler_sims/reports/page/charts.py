"""The line and scatter charts of the page, as plotly figures in plain JSON values.

This module doesn't import plotly: a figure is data, and the page's script adds the colours of the light or dark theme.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, log10
from typing import Any

from scheduler_sims.record import RunRecord
from scheduler_sims.reports.comparison import SIMULATED, mean_jcts
from scheduler_sims.reports.metrics import finished_jobs
from scheduler_sims.reports.page.palette import JOB_COLOURS, plotly_text, short_name
from scheduler_sims.reports.page.series import TimeScale, cumulative, gpus_held, queue_length, short
from scheduler_sims.reports.stats import relative_error

Figure = dict[str, Any]
MOST_AREAS = 60
"""Maximum number of jobs in a chart with an area for each."""
LOG_FROM_RATIO = 50.0
"""A time axis is logarithmic if the longest JCT is more than this many times the shortest one."""


def split(runs: Sequence[RunRecord]) -> dict[str, tuple[RunRecord | None, list[RunRecord]]]:
    """For each policy its simulated run (if any) and its other runs."""
    by_policy: dict[str, tuple[RunRecord | None, list[RunRecord]]] = {}
    for run in runs:
        predicted, observed = by_policy.get(run.policy, (None, []))
        by_policy[run.policy] = (run, observed) if run.cluster == SIMULATED else (predicted, [*observed, run])
    return by_policy


def jct_cdf(runs: Sequence[RunRecord], colours: Mapping[str, str]) -> Figure:
    """The share of jobs finished within a JCT: predicted as a dashed line, observed (all repeats together) as a solid one."""
    jcts = [job.jct_s for run in runs for job in finished_jobs(run)]
    scale = TimeScale.for_longest(max(jcts, default=0.0))
    lines: list[Figure] = []
    for policy, (predicted, observed) in split(runs).items():
        for name, several in (("observed", observed), ("predicted", [predicted] if predicted else [])):
            times, shares = cumulative(job.jct_s for run in several for job in finished_jobs(run))
            if times:
                x = [scale.of(time) for time in times]
                lines.append(_line(policy, name, colours[policy], x, shares))
                lines[-1]["showlegend"] = name == "observed" or not observed  # one legend entry for each policy
                lines[-1]["hovertemplate"] = (
                    f"%{{y:.0%}} of jobs within %{{x}} {scale.unit}<extra>%{{fullData.name}}, {name}</extra>"
                )
    axis = {"title": {"text": f"job completion time ({scale.unit}{log_note(jcts)})"}, **time_axis(jcts, scale)}
    return framed(
        lines, 420, axis, {"title": {"text": "share of finished jobs"}, "range": [0, 1.01], "tickformat": ".0%"}
    )


def predicted_against_observed(runs: Sequence[RunRecord], colours: Mapping[str, str]) -> Figure | None:
    """A point for each job: on the left both JCTs with the diagonal, on the right the error in percent.

    None if no job has both JCTs.
    """
    pairs = {
        policy: [(job, jct, seen[job]) for job, jct in mean_jcts([predicted]).items() if job in seen]
        for policy, (predicted, observed) in split(runs).items()
        if predicted and (seen := mean_jcts(observed))
    }
    times = [time for points in pairs.values() for _, ours, theirs in points for time in (ours, theirs)]
    if not times:
        return None
    scale = TimeScale.for_longest(max(times))
    ends = [scale.of(min(times)), scale.of(max(times))]
    traces: list[Figure] = [
        {"type": "scatter", "mode": "lines", "x": ends, "y": ends, "hoverinfo": "skip", "showlegend": False}
        | {"line": {"color": "rgba(128,128,128,0.8)", "width": 1}}
    ]
    for policy, points in pairs.items():
        traces.extend(_points(policy, points, colours[policy], scale))
    note = log_note(times)
    left = {"domain": [0, 0.46], "title": {"text": f"observed JCT ({scale.unit}{note})"}, **time_axis(times, scale)}
    figure = framed(
        traces, 440, left, {"title": {"text": f"predicted JCT ({scale.unit}{note})"}, **time_axis(times, scale)}
    )
    figure["layout"]["xaxis2"] = {**left, "domain": [0.56, 1], "anchor": "y2"}
    figure["layout"]["yaxis2"] = {
        "anchor": "x2",
        "title": {"text": "error of the prediction (%)"},
        "zerolinecolor": "rgba(128,128,128,0.8)",
    }
    return figure


def queue_lengths(runs: Sequence[RunRecord], colours: Mapping[str, str]) -> Figure:
    """Waiting jobs over time, one panel for each policy with common axes: predicted dashed, the first observed run solid."""
    scale = TimeScale.for_longest(max((job.finish_s for run in runs for job in run.jobs), default=0.0))
    by_policy = split(runs)
    figure = framed([], 90 + 140 * len(by_policy), {}, {})
    layout = figure["layout"]
    layout |= {"annotations": [], "showlegend": False}
    highest = 1
    for number, (policy, (predicted, observed)) in enumerate(by_policy.items(), start=1):
        suffix = "" if number == 1 else str(number)
        for name, run in (("observed", observed[0] if observed else None), ("predicted", predicted)):
            if run is not None:
                times, lengths = queue_length(run)
                highest = max(highest, *lengths, 1)
                line = _line(policy, name, colours[policy], [scale.of(time) for time in times], lengths)
                line |= {
                    "yaxis": f"y{suffix}",
                    "hovertemplate": f"%{{y}} waiting at %{{x}} {scale.unit}<extra>%{{fullData.name}}, {name}</extra>",
                }
                figure["data"].append(line)
        domain = _panel(number, len(by_policy))
        layout[f"yaxis{suffix}"] = {"domain": domain, "title": {"text": "jobs waiting"}}
        layout["annotations"].append(_panel_name(policy, colours[policy], domain[1]))
    for number in range(1, len(by_policy) + 1):
        layout[f"yaxis{'' if number == 1 else number}"]["range"] = [0, highest * 1.08]
    last = "y" if len(by_policy) == 1 else f"y{len(by_policy)}"
    layout["xaxis"] = {"title": {"text": f"emulated time since the run's start ({scale.unit})"}, "anchor": last}
    return figure


def gpus_of_jobs(runs: Sequence[RunRecord], colours: Mapping[str, str]) -> Figure | None:
    """The GPUs of each job over time, one on top of the other, in a panel for each policy that gives a job different numbers of
    GPUs; of its first observed run, or else of the predicted one. None if no policy does."""
    shown = {policy: observed[0] if observed else predicted for policy, (predicted, observed) in split(runs).items()}
    few = {policy: run for policy, run in shown.items() if run is not None and len(run.jobs) <= MOST_AREAS}
    lines = {policy: gpus_held(run) for policy, run in few.items()}
    lines = {policy: found for policy, found in lines.items() if _resized(found[1])}
    if not lines:
        return None
    scale = TimeScale.for_longest(max(times[-1] for times, _ in lines.values()))
    figure = framed([], 90 + 220 * len(lines), {}, {})
    layout = figure["layout"]
    layout |= {"annotations": [], "showlegend": False}
    for number, (policy, (times, held)) in enumerate(lines.items(), start=1):
        suffix = "" if number == 1 else str(number)
        for position, (job_id, gpus) in enumerate(held.items()):
            line = _line(
                job_id, "predicted", JOB_COLOURS[position % len(JOB_COLOURS)], [scale.of(time) for time in times], gpus
            )
            line["line"] |= {"width": 1, "dash": "solid"}
            line |= {"yaxis": f"y{suffix}", "stackgroup": policy}
            line["hovertemplate"] = f"%{{y}} GPUs at %{{x}} {scale.unit}<extra>%{{fullData.name}}</extra>"
            figure["data"].append(line)
        domain = _panel(number, len(lines))
        layout[f"yaxis{suffix}"] = {"domain": domain, "title": {"text": "GPUs"}, "rangemode": "tozero"}
        layout["annotations"].append(_panel_name(policy, colours[policy], domain[1]))
    last = "y" if len(lines) == 1 else f"y{len(lines)}"
    layout["xaxis"] = {"title": {"text": f"emulated time since the run's start ({scale.unit})"}, "anchor": last}
    return figure


def _resized(held: Mapping[str, Sequence[int]]) -> bool:
    """Whether a job of a few had different numbers of GPUs; the areas of many jobs would look alike."""
    return len(held) <= MOST_AREAS and any(len(set(gpus) - {0}) > 1 for gpus in held.values())


def _panel(number: int, panels: int) -> list[float]:
    height = 1 / panels
    return [short(1 - number * height + 0.08 * height), short(1 - (number - 1) * height - 0.12 * height)]


def _panel_name(policy: str, colour: str, top: float) -> Figure:
    place = {"xref": "paper", "yref": "paper", "x": 0, "y": top, "xanchor": "left", "yanchor": "bottom"}
    return {**place, "text": f"<b>{plotly_text(policy)}</b>", "showarrow": False, "font": {"color": colour}}


def _points(policy: str, points: Sequence[tuple[str, float, float]], colour: str, scale: TimeScale) -> list[Figure]:
    common = {
        "type": "scatter",
        "mode": "markers",
        "name": plotly_text(short_name(policy)),
        "legendgroup": policy,
        "text": [plotly_text(job) for job, _, _ in points],
        "x": [scale.of(theirs) for _, _, theirs in points],
        "marker": {"color": colour, "size": 6, "opacity": 0.7},
    }
    errors = [relative_error(ours, theirs) for _, ours, theirs in points]
    jct_hover = f"<b>%{{text}}</b><br>predicted %{{y}} {scale.unit}<br>observed %{{x}} {scale.unit}"
    return [
        {**common, "y": [scale.of(ours) for _, ours, _ in points], "hovertemplate": jct_hover},
        {
            **common,
            "showlegend": False,
            "xaxis": "x2",
            "yaxis": "y2",
            "y": [None if error is None else short(100 * error) for error in errors],
            "hovertemplate": f"<b>%{{text}}</b><br>error %{{y:.2f}}%<br>observed %{{x}} {scale.unit}",
        },
    ]


def _line(policy: str, kind: str, colour: str, x: Sequence[float], y: Sequence[float]) -> Figure:
    """A line of a chart. Predicted is thin and dashed, on top of the wide and paler observed line, so that both are visible."""
    look = {"width": 1.6, "dash": "5px,3px"} if kind == "predicted" else {"width": 4}
    return {
        "type": "scatter",
        "mode": "lines",
        "name": plotly_text(short_name(policy)),
        "legendgroup": policy,
        "x": x,
        "y": y,
        "line": {"shape": "hv", "color": colour, **look},
        "opacity": 1 if kind == "predicted" else 0.42,
    }


def framed(data: list[Figure], height: int, xaxis: Figure, yaxis: Figure) -> Figure:
    """Traces with axes, in the look of all charts."""
    layout = {
        "height": height,
        "hovermode": "closest",
        "xaxis": xaxis,
        "yaxis": yaxis,
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "margin": {"l": 60, "r": 24, "t": 44, "b": 50},
    }
    return {"data": data, "layout": layout}


def _is_log(times: Sequence[float]) -> bool:
    return bool(times) and min(times) > 0 and max(times) > LOG_FROM_RATIO * min(times)


def log_note(times: Sequence[float]) -> str:
    """For the title of such an axis."""
    return ", logarithmic" if _is_log(times) else ""


def time_axis(times: Sequence[float], scale: TimeScale) -> Figure:
    """An axis from 0, or a logarithmic one if the times in seconds differ much."""
    if not _is_log(times):
        return {"type": "linear", "rangemode": "tozero"}
    low, high = min(times) / scale.seconds, max(times) / scale.seconds
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    leads = (1, 2, 5) if len(decades) <= 5 else (1,)
    ticks = [short(lead * 10.0**decade) for decade in decades for lead in leads]
    return {"type": "log", "tickmode": "array", "tickvals": ticks, "ticktext": [f"{tick:,.10g}" for tick in ticks]}
