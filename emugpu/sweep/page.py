"""report.html of a sweep: a table for each condition, and charts of every figure over the load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from rich import box
from rich.markup import escape as plain
from rich.table import Table

from emugpu.sweep.evaluation import GRID, Outcome
from emugpu.sweep.plan import Condition, Point, Sweep
from emugpu.sweep.statistics import CONFIDENCE, Interval, Line
from scheduler_sims.reports.files import write_atomically
from scheduler_sims.reports.formats import MISSING, correlation, count, percent, seconds, share
from scheduler_sims.reports.page.charts import Figure
from scheduler_sims.reports.page.frame import chart_section, document, json_in_script
from scheduler_sims.reports.page.palette import policy_colours
from scheduler_sims.reports.page.plots import Points, bars, lines, times_cdf

FIGURES: Mapping[str, tuple[str, str]] = {
    "mean_jct_s": ("mean JCT", "mean JCT (s)"),
    "p95_jct_s": ("p95 JCT", "p95 JCT (s)"),
    "p99_jct_s": ("p99 JCT", "p99 JCT (s)"),
    "makespan_s": ("makespan", "makespan (s)"),
    "mean_queueing_delay_s": ("queueing", "mean queueing delay (s)"),
    "utilisation": ("utilisation", "GPU utilisation"),
    "fairness": ("fairness", "Jain's index of slowdowns"),
    "p95_slowdown": ("p95 slowdown", "p95 slowdown"),
    "preemptions": ("preemptions", "preemptions"),
    "decisions": ("decisions", "decisions of the policy"),
}
"""By name: the heading of its column, and the title of its axis."""
_SHARES = ("utilisation",)
_FORMS = {"utilisation": share, "fairness": correlation, "preemptions": count, "decisions": count}
"""How figures are written that aren't seconds."""
_IN_TERMINAL = ("mean_jct_s", "p95_jct_s", "mean_queueing_delay_s", "utilisation", "fairness", "preemptions")
_TEXTS = {
    "fairness": "1: all jobs are slowed down alike. Slowdown is JCT over the time alone on the cluster.",
    "mean_queueing_delay_s": "From submission to the first allocation.",
}


def write_page(path: Path, sweep: Sweep, found: Sequence[Line], title: str) -> None:
    """The same sweep gives the same bytes. Raises InputError if it can't be written."""
    colours = policy_colours(sweep.policies)
    charts: dict[str, Figure] = {}
    sections = [
        _header(sweep, title),
        *(_table_section(condition, found, sweep.policies[0]) for condition in sweep.conditions),
    ]
    for estimates in sweep.estimates:
        own = [line for line in found if line.condition.estimates == estimates]
        suffix = "" if len(sweep.estimates) == 1 else f", estimates {estimates}"
        for name, (_, axis) in FIGURES.items():
            key = f"{name}-{len(charts)}"
            charts[key] = (
                _over_loads(sweep, own, name, colours) if len(sweep.loads) > 1 else _as_bars(own, name, colours)
            )
            sections.append(chart_section(key, axis + suffix, _TEXTS.get(name, "")))
    for condition in sweep.conditions:
        quantiles = {line.policy: line.jct_s for line in found if line.condition == condition and line.jct_s}
        key = f"cdf-{len(charts)}"
        charts[key] = times_cdf(quantiles, colours, "job completion time", "share of finished jobs")
        text = f"Means over seeds of the {len(GRID)} quantiles."
        sections.append(chart_section(key, f"Job completion times, {condition}", text))
    data = json_in_script({"charts": charts, "gantt": []})
    write_atomically(path, document(title, "\n".join(sections), data))


def _header(sweep: Sweep, title: str) -> str:
    inputs = sweep.inputs
    facts: dict[str, Any] = {
        "policies": len(sweep.policies),
        "seeds": len(sweep.seeds),
        "cluster": inputs.cluster.name,
        "jobs": inputs.recipe.jobs if inputs.recipe else inputs.jobs or "all",
        "not counted": f"{inputs.warm_up} first, {inputs.cool_down} last" if inputs.warm_up or inputs.cool_down else "",
    }
    items = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(str(v))}</dd></div>" for k, v in facts.items() if v)
    lead = (
        f"Means over seeds, ± the half width of their {CONFIDENCE:.0%} confidence interval; below, the difference to "
        f"{sweep.policies[0]} with the same seeds. Differences that may be chance are grey."
    )
    return f"<header><h1>{escape(title)}</h1><p class='lead'>{escape(lead)}</p><dl class='meta'>{items}</dl></header>"


def _table_section(condition: Condition, found: Sequence[Line], baseline: str) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading, _ in FIGURES.values())
    rows = "".join(_row(line, baseline) for line in found if line.condition == condition)
    table = f"<table><thead><tr><th class='name'>policy</th>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f"<section><h2>{escape(str(condition)).capitalize()}</h2><div class='scroll'>{table}</div></section>"


def _row(line: Line, baseline: str) -> str:
    differences = {} if line.policy == baseline else line.differences
    cells = "".join(
        f"<td>{escape(cell(name, line.figures.get(name)))}{_difference(differences.get(name))}</td>" for name in FIGURES
    )
    return f"<tr><td class='name'>{escape(line.policy)}</td>{cells}</tr>"


def _difference(interval: Interval | None) -> str:
    if interval is None:
        return ""
    text = escape(difference(interval))
    return f"<br>{text}" if interval.certain else f"<br><span class='muted'>{text}</span>"


def difference(interval: Interval) -> str:
    """Such as −12.3% ± 1.1%."""
    half = "" if interval.half is None else f" ± {percent(interval.half, signed=False)}"
    return f"{percent(interval.mean)}{half}"


def cell(name: str, interval: Interval | None, *, half: bool = True) -> str:
    """A figure; with `half`, with its interval."""
    if interval is None:
        return MISSING
    form = _FORMS.get(name, seconds)
    return form(interval.mean) + (f" ± {form(interval.half)}" if half and interval.half else "")


def _over_loads(sweep: Sweep, found: Sequence[Line], name: str, colours: Mapping[str, str]) -> Figure:
    series = {}
    for policy in sweep.policies:
        own = [
            (line.condition.load, line.figures[name])
            for line in found
            if line.policy == policy and name in line.figures
        ]
        series[policy] = Points(
            [load for load, _ in own], [one.mean for _, one in own], [one.half or 0.0 for _, one in own]
        )
    return lines(series, colours, ("load", FIGURES[name][1]), share=name in _SHARES)


def _as_bars(found: Sequence[Line], name: str, colours: Mapping[str, str]) -> Figure:
    own = [line for line in found if name in line.figures]
    series = {FIGURES[name][1]: [line.figures[name].mean for line in own]}
    figure = bars([line.policy for line in own], series, {FIGURES[name][1]: ""}, ("", FIGURES[name][1]))
    figure["data"][0]["marker"]["color"] = [colours[line.policy] for line in own]
    figure["data"][0]["error_y"] = {"type": "data", "array": [line.figures[name].half or 0.0 for line in own]}
    if name in _SHARES:
        figure["layout"]["yaxis"]["tickformat"] = ".0%"
    return figure


def terminal_table(sweep: Sweep, found: Sequence[Line], outcomes: Mapping[Point, Outcome]) -> Table:
    """A row for each condition and policy; with the time that the policy took here for a decision."""
    caption = (
        f"± {CONFIDENCE:.0%} confidence over {len(sweep.seeds)} seeds; vs: mean JCT against {sweep.policies[0]} with the same "
        "seeds, ? if it may be chance; all in emulated seconds but ms/plan, the policy's time here"
    )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), caption=caption, caption_justify="left")
    table.add_column("policy", overflow="fold", min_width=22, max_width=30)
    headings = [*(FIGURES[name][0] for name in _IN_TERMINAL), "vs", "ms/plan"]
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    last = None
    for line in found:
        if line.condition != last:
            last = line.condition
            table.add_row(f"[bold]{plain(str(last))}[/]")
        against = line.differences.get("mean_jct_s")
        cells = [cell(name, line.figures.get(name), half=name == _IN_TERMINAL[0]) for name in _IN_TERMINAL]
        versus = (
            ""
            if line.policy == sweep.policies[0] or against is None
            else percent(against.mean) + ("" if against.certain else "?")
        )
        table.add_row(plain(line.policy), *cells, versus, _decision_ms(line, outcomes))
    return table


def _decision_ms(line: Line, outcomes: Mapping[Point, Outcome]) -> str:
    own = [one for point, one in outcomes.items() if point.policy == line.policy and point.condition == line.condition]
    decisions = sum(one.figures.get("decisions") or 0.0 for one in own)
    return f"{1000 * sum(one.policy_s for one in own) / decisions:.3f}" if decisions else MISSING
