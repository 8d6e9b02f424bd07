"""Prints a comparison in the terminal: first possible distortions, then the figures, then the errors of single jobs."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from scheduler_sims.reports.comparison import Comparison
from scheduler_sims.reports.distortion import failures, warnings
from scheduler_sims.reports.ranking import standings
from scheduler_sims.reports.rows import (
    ERROR_CAPTION,
    ERROR_HEADINGS,
    ERROR_MEANING,
    MAIN_COLUMNS,
    SERVICE_CAPTION,
    SERVICE_HEADINGS,
    STANDING_HEADINGS,
    error_cells,
    figure_rows,
    service_rows,
    standing_caption,
    standing_cells,
)


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print the comparison; 100 columns are sufficient."""
    console.print(render_comparison(comparison))


def render_comparison(comparison: Comparison) -> RenderableType:
    """The whole comparison as one renderable."""
    parts: list[RenderableType] = [Text(f"warning: {line}", style="yellow") for line in warnings(comparison)]
    parts.append(figures_table(comparison))
    if any(policy.error for policy in comparison.policies):
        parts.append(error_table(comparison))
        if len(comparison.policies) > 1:
            parts.append(standing_table(comparison))
    if any(policy.services for policy in comparison.policies):
        parts.append(services_table(comparison))
    parts.extend(Text(f"failed: {line}", style="red") for line in failures(comparison))
    return Group(*parts)


def figures_table(comparison: Comparison) -> Table:
    """For each policy the rows predicted, observed and error."""
    errors = any(policy.error for policy in comparison.policies)
    meaning = f"; {ERROR_MEANING}" if errors else ""
    table = _table(f"JCT and makespan in emulated seconds{meaning}")
    table.add_column("policy", overflow="fold", min_width=16, max_width=24)
    table.add_column("", no_wrap=True)
    for column in MAIN_COLUMNS:
        table.add_column(column.heading, justify="right", no_wrap=True)
    for policy in comparison.policies:
        for name, (kind, cells) in zip(_once(policy.policy), figure_rows(policy, MAIN_COLUMNS), strict=False):
            table.add_row(name, kind, *cells, style="bold" if kind == "error" else "")
        if policy.predicted and policy.observed:
            table.add_section()
    return table


def error_table(comparison: Comparison) -> Table:
    """For each policy the errors of single jobs, whether their order is right, and how much the repeats vary."""
    table = _table(ERROR_CAPTION)
    table.add_column("policy", overflow="fold", min_width=16, max_width=24)
    for heading in ERROR_HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    for policy in comparison.policies:
        if policy.error and policy.observed:
            cells = error_cells(policy.error, policy.observed)[: len(ERROR_HEADINGS)]
            table.add_row(Text(policy.policy), *cells)
    return table


def standing_table(comparison: Comparison) -> Table:
    """For each policy its rank and its ratio to the first policy, predicted and observed."""
    table = _table(standing_caption(comparison))
    table.add_column("policy", overflow="fold", min_width=16, max_width=24)
    for heading in STANDING_HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    for standing in standings(comparison):
        table.add_row(Text(standing.policy), *standing_cells(standing))
    return table


def services_table(comparison: Comparison) -> Table:
    """For each policy and run, how well it served each inference service."""
    table = _table(SERVICE_CAPTION)
    table.add_column("policy", overflow="fold", min_width=16, max_width=24)
    for heading in ("", *SERVICE_HEADINGS):
        table.add_column(heading, justify="right", no_wrap=True)
    for policy in comparison.policies:
        for name, (kind, cells) in zip(_once(policy.policy), service_rows(policy), strict=False):
            table.add_row(name, kind, *cells)
    return table


def _table(title: str) -> Table:
    return Table(
        title=Text(title), title_style="dim", title_justify="left", header_style="bold", box=SIMPLE_HEAD, pad_edge=False
    )


def _once(name: str) -> Iterator[Text]:
    yield Text(name)
    while True:
        yield Text()
