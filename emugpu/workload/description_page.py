"""A workload's description for people: the table in the terminal, and report.html with its pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import ceil
from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape as plain
from rich.table import Table
from rich.text import Text

from scheduler_sims.inputs.description import Description, Distribution, Measures, Share
from scheduler_sims.reports.files import write_atomically
from scheduler_sims.reports.formats import count, seconds, share
from scheduler_sims.reports.page.charts import Figure
from scheduler_sims.reports.page.frame import chart_section, document, json_in_script
from scheduler_sims.reports.page.palette import POLICY_COLOURS
from scheduler_sims.reports.page.plots import bars, steps, times_cdf
from scheduler_sims.reports.page.series import TimeScale

_HOUR_S = 3600.0
_HEADINGS = ("", "mean", "least", "p10", "p50", "p90", "p99", "most")
_SLICES = 200
_MOST_SIZES = 16
_LEAST_GAP_S = 1.0


def render(one: Description, name: str) -> RenderableType:
    """The description for a terminal."""
    facts = Table(box=None, show_header=False, pad_edge=False)
    for fact, value in _facts(one):
        facts.add_row(fact, Text(value))
    distributions = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in _HEADINGS:
        distributions.add_column(heading, justify="left" if not heading else "right")
    for row in _distribution_rows(one):
        distributions.add_row(*row)
    return Group(
        Text(name, style="bold"),
        facts,
        distributions,
        _share_table("GPUs", one.sizes, one.gpu_s),
        _share_table("user", one.users, one.gpu_s),
    )


def _share_table(heading: str, shares: Sequence[Share], total_gpu_s: float) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in (heading, "jobs", "of all GPU-hours"):
        table.add_column(name, justify="left" if name == heading else "right")
    for name, jobs, part in _share_rows(shares, total_gpu_s):
        table.add_row(plain(name), jobs, part)
    return table


def _facts(one: Description) -> Iterator[tuple[str, str]]:
    scale = TimeScale.for_longest(one.span_s)
    yield "jobs", f"{one.jobs:,}" + (f", {one.gangs:,} of them on several nodes" if one.gangs else "")
    yield "users", f"{one.user_count:,}"
    yield "submitted within", f"{count(scale.of(one.span_s))} {scale.unit}"
    yield "GPU-hours", seconds(one.gpu_s / _HOUR_S)
    if one.load is not None:
        yield "load", f"{share(one.load)} of {one.cluster_gpus:,} GPUs over that time"
    if one.unknown:
        yield "without a duration", f"{one.unknown:,} jobs of models: --cluster says on which GPUs they run"


def _distribution_rows(one: Description) -> Iterator[list[str]]:
    for name, values in (
        ("GPUs", one.gpus),
        ("duration (s)", one.durations_s),
        ("between arrivals (s)", one.interarrivals_s),
    ):
        yield [name, *_cells(values)]


def _cells(values: Distribution) -> list[str]:
    if not values.count:
        return ["–"] * 7
    numbers = (values.mean, values.least, values.p10, values.p50, values.p90, values.p99, values.most)
    return [seconds(number) for number in numbers]


def _share_rows(shares: Sequence[Share], total_gpu_s: float) -> Iterator[tuple[str, str, str]]:
    for one in shares:
        yield one.name, f"{one.jobs:,}", share(one.gpu_s / total_gpu_s if total_gpu_s else None)


def write_page(path: Path, one: Description, measures: Measures, name: str) -> None:
    """Writes report.html. The same workload gives the same bytes. Raises InputError if it can't be written."""
    jobs, hours = POLICY_COLOURS[0], POLICY_COLOURS[1]
    charts = {
        "sizes": _shares_chart(one.sizes[:_MOST_SIZES], one, "GPUs of a job"),
        "durations": times_cdf({"jobs": measures.known_durations_s}, {"jobs": jobs}, "duration alone", "share of jobs"),
        "arrivals": _arrivals_chart(measures, jobs),
        "gaps": times_cdf(
            {"jobs": [max(gap_s, _LEAST_GAP_S) for gap_s in measures.interarrivals_s]},
            {"jobs": hours},
            "time between arrivals",
            "share of arrivals",
        ),
        "users": _shares_chart(one.users, one, "user"),
    }
    sections = [
        f"<header><h1>{escape(name)}</h1><dl class='meta'>"
        + "".join(f"<div><dt>{escape(fact)}</dt><dd>{escape(value)}</dd></div>" for fact, value in _facts(one))
        + "</dl></header>",
        _table_section(one),
        chart_section("sizes", "GPUs of a job", _more("Shares of jobs and of GPU-hours", len(one.sizes), _MOST_SIZES)),
        chart_section("durations", "Durations", "Of a job alone on its GPUs."),
        chart_section("arrivals", "Arrivals", "Jobs submitted in each slice of the time."),
        chart_section(
            "gaps",
            "Times between arrivals",
            f"From one submission to the next; those below {_LEAST_GAP_S:g} s are drawn as {_LEAST_GAP_S:g} s.",
        ),
        chart_section("users", "Users", _more("Shares of jobs and of GPU-hours", one.user_count, len(one.users))),
    ]
    data = json_in_script({"charts": charts, "gantt": []})
    write_atomically(path, document(f"Workload {name}", "\n".join(sections), data))


def _more(text: str, there: int, shown: int) -> str:
    return f"{text}; {shown} of {there:,}." if there > shown else f"{text}."


def _table_section(one: Description) -> str:
    head = "".join(f"<th{'' if name else ' class=name'}>{name}</th>" for name in _HEADINGS)
    rows = "".join(
        f"<tr><td class='name'>{row[0]}</td>" + "".join(f"<td>{cell}</td>" for cell in row[1:]) + "</tr>"
        for row in _distribution_rows(one)
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f"<section><h2>Distributions</h2><div class='scroll'>{table}</div></section>"


def _shares_chart(shares: Sequence[Share], one: Description, title: str) -> Figure:
    parts = {"jobs": [each.jobs / one.jobs for each in shares]}
    if one.gpu_s:
        parts["GPU-hours"] = [each.gpu_s / one.gpu_s for each in shares]
    colours = {"jobs": POLICY_COLOURS[0], "GPU-hours": POLICY_COLOURS[1]}
    figure = bars([each.name for each in shares], parts, colours, (title, "share"))
    figure["layout"]["yaxis"]["tickformat"] = ".0%"
    return figure


def _arrivals_chart(measures: Measures, colour: str) -> Figure:
    """Slices of whole hours where the time is long enough, else of equal parts."""
    origin_s, span_s = measures.submit_s[0], measures.submit_s[-1] - measures.submit_s[0]
    width_s = max(span_s / _SLICES, 1.0)
    if width_s > _HOUR_S / 4:
        width_s = ceil(width_s / _HOUR_S) * _HOUR_S
    counts = [0] * (int(span_s / width_s) + 2)
    for submit_s in measures.submit_s:
        counts[int((submit_s - origin_s) / width_s)] += 1
    scale = TimeScale.for_longest(span_s)
    of_slice = f"{width_s / _HOUR_S:g} h" if width_s >= _HOUR_S else f"{seconds(width_s)} s"
    times = [scale.of(number * width_s) for number in range(len(counts))]
    return steps(times, counts, colour, (f"time since the first submission ({scale.unit})", f"jobs in {of_slice}"))
