"""The texts and tables of the page. They contain all figures, so the page is complete even without its charts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from scheduler_sims.reports.comparison import Comparison, PolicyComparison
from scheduler_sims.reports.distortion import failures, warnings
from scheduler_sims.reports.formats import count, seconds
from scheduler_sims.reports.ranking import standings
from scheduler_sims.reports.rows import (
    ALL_COLUMNS,
    ALL_ERROR_HEADINGS,
    ERROR_CAPTION,
    ERROR_MEANING,
    QUANTILE_CAPTION,
    QUANTILE_HEADINGS,
    SERVICE_CAPTION,
    SERVICE_HEADINGS,
    STANDING_HEADINGS,
    error_cells,
    figure_rows,
    quantile_rows,
    service_rows,
    standing_caption,
    standing_cells,
)
from scheduler_sims.reports.verdict import verdict

MOST_IN_TITLE = 4


DEFINITIONS = (
    ("JCT", "job completion time: from submission to the end. Only finished jobs count; failed ones are named."),
    ("error", "(predicted − observed) / observed. Observed is the mean over the repeats."),
    ("median, p95", "interpolated linearly between the two nearest ranks."),
    ("e", "the error of a single job’s JCT; |e| is its size without the sign."),
    ("makespan", "from the first submission to the last end of any job."),
    ("utilisation", "share of GPUs × makespan in which a GPU was held by at least one job."),
    ("CPU utilisation", "share of CPUs × makespan that was given to jobs, as it was divided over time."),
    ("queueing delay", "from submission to the first allocation."),
    ("Spearman", "rank correlation of predicted and observed JCTs, ties averaged; 1: the same order."),
    ("Kendall", "the other common rank correlation (tau-b): pairs of jobs in the same order less those that aren’t."),
    ("CDF |e|", "largest absolute error of the JCT distribution at its 5%, 10%, … 95% quantiles."),
    ("spread", "(largest − smallest) / mean of the repeats' mean JCTs."),
    ("lag", "how much later than its deadline the observed cluster acted, in emulated seconds."),
)


def header(comparison: Comparison, meta: Mapping[str, Any]) -> str:
    """The title and the description of the comparison."""
    items = "".join(
        f"<div><dt>{escape(str(name))}</dt><dd>{escape(in_words(value))}</dd></div>" for name, value in meta.items()
    )
    return (
        f"<header><h1>{escape(title(comparison))}</h1><p class='lead'>{escape(_lead(comparison))}</p>"
        f"<dl class='meta'>{items}</dl></header>"
    )


def title(comparison: Comparison) -> str:
    """The title of the page, with the names of the policies."""
    names = [policy.policy for policy in comparison.policies]
    if len(names) < 2:
        return f"Scheduling policy {names[0]}" if names else "No scheduling policy was run"
    if len(names) > MOST_IN_TITLE:
        return f"{len(names)} scheduling policies compared"
    return f"{', '.join(names[:-1])} and {names[-1]} compared"


def warning_section(comparison: Comparison) -> str:
    """Possible distortions of the result; empty if there are none."""
    lines = warnings(comparison)
    if not lines:
        return ""
    return f"<section class='warnings'><h2>Read this first</h2>{_list(lines)}</section>"


def headline_section(comparison: Comparison, colours: Mapping[str, str]) -> str:
    """The result in sentences, then the tables that the terminal shows, too."""
    sentences = "".join(f"<li>{escape(line)}</li>" for line in verdict(comparison))
    return (
        f"<section><h2>Result</h2><ul class='headline'>{sentences}</ul>"
        f"{_figures_table(comparison, colours)}{_errors_table(comparison, colours)}"
        f"{_standings_table(comparison, colours)}{_services_table(comparison)}</section>"
    )


def quantile_section(comparison: Comparison) -> str:
    """The distribution of the JCTs as numbers, collapsed; empty without an error."""
    rows = [
        _row([policy.policy, name], cells)
        for policy in comparison.policies
        if policy.error
        for name, cells in quantile_rows(policy.error)
    ]
    if not rows:
        return ""
    table = _table(_head(["policy", "quantile"], QUANTILE_HEADINGS), ["<tbody>", *rows, "</tbody>"])
    return f"<section><details><summary>{escape(QUANTILE_CAPTION)}</summary>{table}</details></section>"


def lag_section(comparison: Comparison) -> str:
    """The lag of the observed runs by policy and kind of deadline; empty if no run has it."""
    rows = [
        _row([policy.policy, kind], [count(lag.count), *_milliseconds(lag.p50_s, lag.p99_s, lag.max_s)])
        for policy in comparison.policies
        if policy.observed
        for kind, lag in policy.observed.lag.items()
    ]
    if not rows:
        return ""
    head = _head(["policy", "deadline"], ["deadlines", "p50 (ms)", "p99 (ms)", "max (ms)"])
    return (
        "<section><h2>Lag of the observed runs</h2><p class='muted'>How much later than planned the real cluster acted, "
        "in emulated milliseconds: counts over all repeats, percentiles of the worst repeat.</p>"
        f"{_table(head, ['<tbody>', *rows, '</tbody>'])}</section>"
    )


def _milliseconds(*values_s: float) -> list[str]:
    return [seconds(1000 * value) for value in values_s]


def failure_section(comparison: Comparison) -> str:
    """The failed jobs with reasons; empty if there are none."""
    lines = failures(comparison)
    return f"<section><h2>Failed jobs</h2>{_list(lines)}</section>" if lines else ""


def definitions_section() -> str:
    """The definitions of all figures, collapsed."""
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in DEFINITIONS)
    return f"<section><details><summary>How the figures are defined</summary><dl>{items}</dl></details></section>"


def in_words(value: Any) -> str:
    """A value of `meta` on one line: mappings as `name value, name value`, lists with commas."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {in_words(item)}" for name, item in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(in_words(item) for item in value) or "none"
    return "none" if value is None else str(value)


def _lead(comparison: Comparison) -> str:
    observed = [policy.observed for policy in comparison.policies if policy.observed]
    if not observed:
        return "Predicted on a simulated cluster; nothing was observed."
    clusters = " and ".join(dict.fromkeys(one.cluster for one in observed))
    most = max(len(one.repeats) for one in observed)
    times = "once" if most == 1 else f"{most} times"
    observing = f"bserved on the {clusters} cluster, each policy {times}."
    predicted = any(policy.predicted for policy in comparison.policies)
    return f"Predicted on a simulated cluster and o{observing}" if predicted else f"O{observing}"


def _figures_table(comparison: Comparison, colours: Mapping[str, str]) -> str:
    head = _head(["policy", ""], [column.heading for column in ALL_COLUMNS])
    bodies = [f"<tbody>{_figure_rows(policy, colours[policy.policy])}</tbody>" for policy in comparison.policies]
    errors = any(policy.error for policy in comparison.policies)
    return _table(head, bodies, f"times in emulated seconds{f'; {ERROR_MEANING}' if errors else ''}")


def _figure_rows(policy: PolicyComparison, colour: str) -> str:
    rows = list(figure_rows(policy, ALL_COLUMNS))
    name = f"<td class='name' rowspan='{len(rows)}'>{_named(policy.policy, colour)}</td>"
    return "".join(
        f"<tr class='{kind}'>{name if number == 0 else ''}<td class='kind'>{kind}</td>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for number, (kind, cells) in enumerate(rows)
    )


def _errors_table(comparison: Comparison, colours: Mapping[str, str]) -> str:
    rows = []
    for policy in comparison.policies:
        if policy.error is None or policy.observed is None:
            continue
        cells = error_cells(policy.error, policy.observed)
        name = f"<td class='name'>{_named(policy.policy, colours[policy.policy])}</td>"
        rows.append(f"<tr>{name}{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>")
    if not rows:
        return ""
    return _table(_head(["policy"], ALL_ERROR_HEADINGS), ["<tbody>", *rows, "</tbody>"], ERROR_CAPTION)


def _services_table(comparison: Comparison) -> str:
    """How well inference services were served; empty without services."""
    rows = [
        _row([policy.policy, kind], cells) for policy in comparison.policies for kind, cells in service_rows(policy)
    ]
    head = _head(["policy", ""], SERVICE_HEADINGS)
    return _table(head, ["<tbody>", *rows, "</tbody>"], SERVICE_CAPTION) if rows else ""


def _standings_table(comparison: Comparison, colours: Mapping[str, str]) -> str:
    """The ranking of the policies, only together with errors: without them, the first table shows the same."""
    if not any(policy.error for policy in comparison.policies):
        return ""
    rows = [
        f"<tr><td class='name'>{_named(standing.policy, colours[standing.policy])}</td>"
        f"{''.join(f'<td>{escape(cell)}</td>' for cell in standing_cells(standing))}</tr>"
        for standing in standings(comparison)
    ]
    if not rows:
        return ""
    head = _head(["policy"], STANDING_HEADINGS)
    return _table(head, ["<tbody>", *rows, "</tbody>"], standing_caption(comparison))


def _named(policy: str, colour: str) -> str:
    return f"<span class='policy'><span class='swatch' style='background:{colour}'></span>{escape(policy)}</span>"


def _head(names: Iterable[str], numbers: Iterable[str]) -> str:
    name_cells = "".join(f"<th class='name'>{escape(name)}</th>" for name in names)
    return f"<thead><tr>{name_cells}{''.join(f'<th>{escape(name)}</th>' for name in numbers)}</tr></thead>"


def _row(names: Iterable[str], numbers: Iterable[str]) -> str:
    name_cells = "".join(f"<td class='name'>{escape(name)}</td>" for name in names)
    return f"<tr>{name_cells}{''.join(f'<td>{escape(number)}</td>' for number in numbers)}</tr>"


def _table(head: str, bodies: Iterable[str], caption: str = "") -> str:
    above = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<div class='scroll'><table>{above}{head}{''.join(bodies)}</table></div>"


def _list(lines: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"
