"""status.results of an experiment: the figures of a comparison as decimal texts, with their units in the names.

Not as floating-point numbers, which some clients change (Kubernetes API conventions, primitive types).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scheduler_sims.record import RunRecord
from scheduler_sims.reports.comparison import SIMULATED, Comparison, PolicyComparison, compare
from scheduler_sims.reports.metrics import Figures

_SECONDS = {
    "meanJCTSeconds": "mean_jct_s",
    "medianJCTSeconds": "median_jct_s",
    "p95JCTSeconds": "p95_jct_s",
    "makespanSeconds": "makespan_s",
    "meanQueueingDelaySeconds": "mean_queueing_delay_s",
}
_ERRORS = {"meanJCT": "mean_jct", "medianJCT": "median_jct", "p95JCT": "p95_jct", "makespan": "makespan"}


@dataclass(frozen=True, slots=True)
class Results:
    """`best`: the column with the smallest observed mean JCT; `error`: the largest error of a mean JCT, such as 1.3%."""

    columns: tuple[Mapping[str, Any], ...] = ()
    best: str = ""
    error: str = ""


def results_of(runs: Iterable[RunRecord], pod_schedulers: Sequence[str]) -> Results:
    """Of all complete runs."""
    comparison = compare(runs)
    means = _means(comparison)
    first = {side: next((m[side] for m in means.values() if m[side]), None) for side in ("predicted", "observed")}
    columns = tuple(_column(one, first, pods=one.policy in pod_schedulers) for one in comparison.policies)
    observed = {name: mean["observed"] for name, mean in means.items() if mean["observed"] is not None}
    errors = [abs(e) for one in comparison.policies if one.error and (e := one.error.by_figure["mean_jct"]) is not None]
    best = min(observed, key=lambda name: observed[name] or 0.0, default="")
    return Results(columns, best, f"{100 * max(errors):.1f}%" if errors else "")


def decimal(value: float, digits: int = 3) -> str:
    """Without an exponent and without a negative zero."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def _means(comparison: Comparison) -> dict[str, dict[str, float | None]]:
    return {
        one.policy: {
            "predicted": one.predicted.mean_jct_s if one.predicted else None,
            "observed": one.observed.figures.mean_jct_s if one.observed else None,
        }
        for one in comparison.policies
    }


def _column(one: PolicyComparison, first: Mapping[str, float | None], *, pods: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"name": one.policy, "kind": "PodScheduler" if pods else "Policy"}
    if one.predicted is not None:
        found["predicted"] = _figures(one.predicted, first["predicted"])
    if one.observed is not None:
        found["observed"] = _figures(one.observed.figures, first["observed"])
        found["repeats"] = len(one.observed.repeats)
    if one.error is not None:
        named = {name: one.error.by_figure[member] for name, member in _ERRORS.items()}
        named |= {"jctQuantilesMax": one.error.jct_quantiles_max_abs, "perJobP95": one.error.per_job.p95_abs}
        found["errors"] = {name: decimal(value, 4) for name, value in named.items() if value is not None}
        if one.error.per_job.spearman is not None:
            found["spearman"] = decimal(one.error.per_job.spearman, 4)
    failed = sum(failure.cluster != SIMULATED for failure in one.failures)
    return {**found, **({"failedJobs": failed} if failed else {})}


def _figures(figures: Figures, first: float | None) -> dict[str, str]:
    values = {name: getattr(figures, member) for name, member in _SECONDS.items()}
    found = {name: decimal(value) for name, value in values.items() if value is not None}
    if first and figures.mean_jct_s is not None:
        found["ratio"] = decimal(figures.mean_jct_s / first, 4)
    return found
