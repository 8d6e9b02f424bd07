"""The comparison in the terminal: first what distorts it, then the figures, then how far single jobs are off."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from scheduler_sims.reports.comparison import Comparison, Errors, Observed, PolicyComparison
from scheduler_sims.reports.distortion import failures, warnings
from scheduler_sims.reports.formats import correlation, count, percent, seconds, share
from scheduler_sims.reports.metrics import Figures


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print the comparison; readable at 100 columns."""
    console.print(render_comparison(comparison))


def render_comparison(comparison: Comparison) -> RenderableType:
    """The whole of it as one renderable."""
    parts: list[RenderableType] = [Text(f"warning: {line}", style="yellow") for line in warnings(comparison)]
    parts.append(figures_table(comparison))
    if any(policy.error for policy in comparison.policies):
        parts.append(error_table(comparison))
    parts.extend(Text(f"failed: {line}", style="red") for line in failures(comparison))
    return Group(*parts)


def figures_table(comparison: Comparison) -> Table:
    """Per policy the rows predicted, observed and error."""
    errors = any(policy.error for policy in comparison.policies)
    meaning = "; error = (predicted - observed) / observed" if errors else ""
    table = _table(f"JCT and makespan in emulated seconds{meaning}")
    table.add_column("policy", overflow="fold", min_width=16, max_width=24)
    table.add_column("", no_wrap=True)
    for heading in ("mean JCT", "median JCT", "p95 JCT", "makespan", "utilisation"):
        table.add_column(heading, justify="right", no_wrap=True)
    for policy in comparison.policies:
        for name, (kind, cells, style) in zip(_once(policy.policy), _figure_rows(policy), strict=False):
            table.add_row(name, kind, *cells, style=style)
        if policy.predicted and policy.observed:
            table.add_section()
    return table


def error_table(comparison: Comparison) -> Table:
    """Per policy how far single jobs are off, whether their order is right, and how much the repeats vary."""
    table = _table("errors of single jobs' JCTs, and how much the repeats of an observation differ")
    table.add_column("policy", overflow="fold", min_width=16, max_width=24)
    for heading in ("jobs", "mean e", "median |e|", "p95 |e|", "Spearman", "CDF |e|", "repeats", "spread"):
        table.add_column(heading, justify="right", no_wrap=True)
    for policy in comparison.policies:
        if policy.error and policy.observed:
            table.add_row(Text(policy.policy), *_error_cells(policy.error, policy.observed))
    return table


def _table(title: str) -> Table:
    return Table(
        title=Text(title), title_style="dim", title_justify="left", header_style="bold", box=SIMPLE_HEAD, pad_edge=False
    )


def _once(name: str) -> Iterator[Text]:
    yield Text(name)
    while True:
        yield Text()


def _figure_rows(policy: PolicyComparison) -> Iterator[tuple[str, list[str], str]]:
    if policy.predicted:
        yield "predicted", _figure_cells(policy.predicted), ""
    if policy.observed:
        yield "observed", _figure_cells(policy.observed.figures), ""
    if policy.error:
        names = ("mean_jct", "median_jct", "p95_jct", "makespan", "utilisation")
        yield "error", [percent(policy.error.by_figure[name]) for name in names], "bold"


def _figure_cells(figures: Figures) -> list[str]:
    times = (figures.mean_jct_s, figures.median_jct_s, figures.p95_jct_s, figures.makespan_s)
    return [*(seconds(value) for value in times), share(figures.utilisation)]


def _error_cells(error: Errors, observed: Observed) -> list[str]:
    spread = observed.spread.get("mean_jct_s")
    return [
        count(error.per_job.jobs),
        percent(error.per_job.mean_signed),
        percent(error.per_job.median_abs, signed=False),
        percent(error.per_job.p95_abs, signed=False),
        correlation(error.per_job.spearman),
        percent(error.jct_quantiles_max_abs, signed=False),
        count(len(observed.repeats)),
        percent(spread.relative if spread else None, signed=False),
    ]
