"""The cells of the tables of a comparison; the terminal and the page only render them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from scheduler_sims.reports.comparison import SIMULATED, Comparison, Errors, Observed, PolicyComparison
from scheduler_sims.reports.formats import MISSING, correlation, count, percent, seconds, share
from scheduler_sims.reports.metrics import Figures
from scheduler_sims.reports.ranking import Standing


@dataclass(frozen=True, slots=True)
class Column:
    """One figure: its heading, its cell, and the name of its error (empty: it has no error)."""

    heading: str
    cell: Callable[[Figures], str]
    error: str = ""


MAIN_COLUMNS = (
    Column("mean JCT", lambda f: seconds(f.mean_jct_s), "mean_jct"),
    Column("median JCT", lambda f: seconds(f.median_jct_s), "median_jct"),
    Column("p95 JCT", lambda f: seconds(f.p95_jct_s), "p95_jct"),
    Column("makespan", lambda f: seconds(f.makespan_s), "makespan"),
    Column("utilisation", lambda f: share(f.utilisation), "utilisation"),
)
ALL_COLUMNS = (
    *MAIN_COLUMNS,
    Column("mean queueing delay", lambda f: seconds(f.mean_queueing_delay_s), "mean_queueing_delay"),
    Column("CPU utilisation", lambda f: share(f.cpu_utilisation), "cpu_utilisation"),
    Column("preemptions", lambda f: count(f.preemptions)),
    Column("finished", lambda f: count(f.finished)),
    Column("failed", lambda f: count(f.failed)),
)
ERROR_HEADINGS = ("jobs", "mean e", "median |e|", "p95 |e|", "Spearman", "CDF |e|", "repeats", "spread")
"""For the terminal; the page has room for more columns."""
ALL_ERROR_HEADINGS = (*ERROR_HEADINGS, "Kendall")
ERROR_CAPTION = "errors of single jobs' JCTs, and how much the repeats of an observation differ"
ERROR_MEANING = "error = (predicted - observed) / observed"


def figure_rows(policy: PolicyComparison, columns: Sequence[Column]) -> Iterator[tuple[str, list[str]]]:
    """The rows predicted, observed and error of a policy, if they exist."""
    if policy.predicted:
        yield "predicted", [column.cell(policy.predicted) for column in columns]
    if policy.observed:
        yield "observed", [column.cell(policy.observed.figures) for column in columns]
    if policy.error:
        errors = policy.error.by_figure
        yield "error", [percent(errors[column.error]) if column.error else "" for column in columns]


def error_cells(error: Errors, observed: Observed) -> list[str]:
    """The cells for the columns ALL_ERROR_HEADINGS."""
    jobs, spread = error.per_job, observed.spread.get("mean_jct_s")
    return [
        count(jobs.jobs),
        percent(jobs.mean_signed),
        percent(jobs.median_abs, signed=False),
        percent(jobs.p95_abs, signed=False),
        correlation(jobs.spearman),
        percent(error.jct_quantiles_max_abs, signed=False),
        count(len(observed.repeats)),
        percent(spread.relative if spread else None, signed=False),
        correlation(jobs.kendall),
    ]


STANDING_HEADINGS = ("place predicted", "observed", "ratio predicted", "observed", "error")


def standing_caption(comparison: Comparison) -> str:
    """The caption that names the policy to which the ratios refer."""
    return f"policies by mean JCT; the ratio is to that of {comparison.policies[0].policy}"


def standing_cells(standing: Standing) -> list[str]:
    """The cells for the columns STANDING_HEADINGS."""
    ratios = (MISSING if r is None else f"{r:.3f}" for r in (standing.predicted_ratio, standing.observed_ratio))
    return [count(standing.predicted_place), count(standing.observed_place), *ratios, percent(standing.error)]


SERVICE_HEADINGS = ("service", "in time", "promised", "requests", "replica hours", "wanted")
SERVICE_CAPTION = "inference services: requests that were answered in time"


def service_rows(policy: PolicyComparison) -> Iterator[tuple[str, list[str]]]:
    """For each run and service, the kind of run and the cells for the columns SERVICE_HEADINGS."""
    for cluster, repeat, level in policy.services:
        kind = "predicted" if cluster == SIMULATED else f"observed {repeat}"
        hours = (f"{held_s / 3600:.2f}" for held_s in (level.replica_s, level.wanted_s))
        shares = (f"{100 * part:.2f}%" for part in (level.in_time, level.promised))
        yield kind, [level.service, *shares, count(level.requests), *hours]


QUANTILE_HEADINGS = ("predicted", "observed", "difference", "error")
QUANTILE_CAPTION = "Quantiles of the sorted JCTs in emulated seconds"


def quantile_rows(errors: Errors) -> Iterator[tuple[str, list[str]]]:
    """For each quantile, its name and the cells for the columns QUANTILE_HEADINGS."""
    for q in errors.jct_quantiles:
        apart = None if q.predicted_s is None or q.observed_s is None else q.predicted_s - q.observed_s
        yield f"{100 * q.share:.0f}%", [seconds(q.predicted_s), seconds(q.observed_s), seconds(apart), percent(q.error)]
