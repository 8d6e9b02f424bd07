"""Compares predicted with observed results for each policy, which shows how accurate the simulator is.

All errors are relative: (predicted - observed) / observed, where observed is the mean over the repeats. Example: 102 s
predicted and 100 s observed are an error of 0.02. An error of None is undefined: nothing was observed, or the observed value
is zero and the predicted one isn't.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from emulator_runtime.domain.errors import InputError
from scheduler_sims.record import LagAccount, RunRecord, ServiceLevel
from scheduler_sims.reports.metrics import FIGURE_NAMES, Figures, failed_jobs, figures, finished_jobs, mean_figures
from scheduler_sims.reports.stats import kendall, mean, quantile, relative_error, spearman

SIMULATED = "simulated"

COMPARED = ("mean_jct", "median_jct", "p95_jct", "makespan", "utilisation", "mean_queueing_delay", "cpu_utilisation")
"""The figures that have an error, by their names in `Errors` (without the unit)."""

QUANTILE_GRID = tuple(i / 20 for i in range(1, 20))
"""The quantiles at which JCT distributions are compared: 5%, 10%, ... 95%. Runs may have different numbers of jobs."""


@dataclass(frozen=True, slots=True)
class PerJobError:
    """Errors of single jobs, over the `jobs` that finished in the prediction and in at least one repeat.

    `spearman` (ties get their mean rank) and `kendall` (tau-b) are rank correlations of predicted and observed JCTs. They are
    None with fewer than two jobs, or if all JCTs of one side are equal.
    """

    jobs: int
    mean_signed: float | None
    median_abs: float | None
    p95_abs: float | None
    spearman: float | None
    kendall: float | None


@dataclass(frozen=True, slots=True)
class QuantileError:
    """The JCT quantile at `share`: predicted, observed (mean over the repeats) and the error."""

    share: float
    predicted_s: float | None
    observed_s: float | None
    error: float | None


@dataclass(frozen=True, slots=True)
class Errors:
    """The errors of one policy: of its figures (COMPARED), of single jobs, and of the JCT quantiles (QUANTILE_GRID)."""

    by_figure: Mapping[str, float | None]
    per_job: PerJobError
    jct_quantiles: tuple[QuantileError, ...]

    @property
    def jct_quantiles_max_abs(self) -> float | None:
        """The largest absolute error of a quantile; None if no error is defined."""
        return max((abs(q.error) for q in self.jct_quantiles if q.error is not None), default=None)


@dataclass(frozen=True, slots=True)
class Spread:
    """How much a figure varies between repeats. `relative` is (max - min) / mean; None with fewer than two repeats."""

    min: float
    max: float
    relative: float | None


@dataclass(frozen=True, slots=True)
class Observed:
    """The observed results of one policy. `lag` has the worst percentiles of all repeats and the sum of their counts."""

    cluster: str
    figures: Figures
    repeats: tuple[Figures, ...]
    spread: Mapping[str, Spread]
    lag: Mapping[str, LagAccount]


@dataclass(frozen=True, slots=True)
class Failure:
    """A job that did not finish in one run."""

    policy: str
    cluster: str
    repeat: int
    job_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class PolicyComparison:
    """One policy. `predicted` or `observed` may be missing; `error` needs both.

    `unmatched`: jobs that finished only in the prediction, or only in the repeats. `notes`: the notes of all runs, without
    duplicates. `services`: cluster, repeat and level of each inference service in each run.
    """

    policy: str
    predicted: Figures | None
    observed: Observed | None
    error: Errors | None
    failures: tuple[Failure, ...] = ()
    unmatched: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    services: tuple[tuple[str, int, ServiceLevel], ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """All policies, in the order of their first runs."""

    policies: tuple[PolicyComparison, ...]


def compare(runs: Iterable[RunRecord]) -> Comparison:
    """Group the runs by policy and compare each policy's simulated run with the mean of its other runs.

    Raises InputError for a policy with two simulated runs, two runs of the same repeat, or two kinds of real cluster.
    """
    by_policy: dict[str, list[RunRecord]] = {}
    for run in runs:
        by_policy.setdefault(run.policy, []).append(run)
    return Comparison(tuple(_compare_policy(policy, own) for policy, own in by_policy.items()))


def mean_jcts(repeats: Sequence[RunRecord]) -> dict[str, float]:
    """The JCT of each job in seconds: the mean over the repeats in which it finished. Ordered by first appearance."""
    values: dict[str, list[float]] = {}
    for run in repeats:
        for job in finished_jobs(run):
            values.setdefault(job.job_id, []).append(job.jct_s)
    return {job_id: sum(jcts) / len(jcts) for job_id, jcts in values.items()}


def _compare_policy(policy: str, runs: list[RunRecord]) -> PolicyComparison:
    _check(policy, runs)
    predicted = next((run for run in runs if run.cluster == SIMULATED), None)
    repeats = [run for run in runs if run.cluster != SIMULATED]
    alone = PolicyComparison(
        policy,
        predicted=figures(predicted) if predicted else None,
        observed=_observed(repeats) if repeats else None,
        error=None,
        failures=tuple(
            Failure(policy, run.cluster, run.repeat, job.job_id, job.reason) for run in runs for job in failed_jobs(run)
        ),
        notes=tuple(dict.fromkeys(note for run in runs for note in run.notes)),
        services=tuple((run.cluster, run.repeat, level) for run in runs for level in run.services),
    )
    if predicted is None or alone.predicted is None or alone.observed is None:
        return alone
    predicted_jcts, observed_jcts = mean_jcts([predicted]), mean_jcts(repeats)
    by_figure = _figure_errors(alone.predicted, alone.observed.figures)
    errors = Errors(by_figure, _per_job(predicted_jcts, observed_jcts), _quantile_errors(predicted, repeats))
    return replace(alone, error=errors, unmatched=tuple(sorted(predicted_jcts.keys() ^ observed_jcts.keys())))


def _check(policy: str, runs: list[RunRecord]) -> None:
    place = f"policy {policy!r}"
    if sum(run.cluster == SIMULATED for run in runs) > 1:
        raise InputError(place, "has several simulated runs; compare one prediction at a time")
    real = sorted({run.cluster for run in runs} - {SIMULATED})
    if len(real) > 1:
        raise InputError(place, f"was observed on several clusters ({', '.join(real)}); compare them one by one")
    if len({(run.cluster, run.repeat) for run in runs}) < len(runs):
        raise InputError(place, "has two runs with the same repeat number; give each run its own")


def _observed(repeats: list[RunRecord]) -> Observed:
    rows = tuple(figures(run) for run in repeats)
    dicts = [row.as_dict() for row in rows]
    spread: dict[str, Spread] = {}
    for name in FIGURE_NAMES:
        values = [value for row in dicts if (value := row[name]) is not None]
        if values:
            spread[name] = _spread(values)
    return Observed(repeats[0].cluster, mean_figures(rows), rows, spread, worst_lag(repeats))


def _spread(values: list[float]) -> Spread:
    low, high, middle = min(values), max(values), sum(values) / len(values)
    if len(values) < 2:
        return Spread(low, high, None)
    return Spread(low, high, (high - low) / middle if middle else 0.0)


def worst_lag(runs: Iterable[RunRecord]) -> dict[str, LagAccount]:
    """For each kind of deadline, the sum of the counts, and percentiles and maximum of the worst run. Sorted by kind."""
    worst: dict[str, LagAccount] = {}
    for run in runs:
        for kind, lag in run.lag.items():
            so_far = worst.get(kind, LagAccount())
            worst[kind] = LagAccount(
                so_far.count + lag.count,
                max(so_far.p50_s, lag.p50_s),
                max(so_far.p99_s, lag.p99_s),
                max(so_far.max_s, lag.max_s),
            )
    return dict(sorted(worst.items()))


def _figure_errors(predicted: Figures, observed: Figures) -> dict[str, float | None]:
    predicted_values, observed_values = predicted.as_dict(), observed.as_dict()
    names = {name: name if name in predicted_values else f"{name}_s" for name in COMPARED}
    return {name: relative_error(predicted_values[key], observed_values[key]) for name, key in names.items()}


def _per_job(predicted: Mapping[str, float], observed: Mapping[str, float]) -> PerJobError:
    both = [job for job in predicted if job in observed]
    errors = [e for job in both if (e := relative_error(predicted[job], observed[job])) is not None]
    absolute = [abs(e) for e in errors]
    pairs = [predicted[job] for job in both], [observed[job] for job in both]
    return PerJobError(
        jobs=len(both),
        mean_signed=mean(errors),
        median_abs=quantile(absolute, 0.5),
        p95_abs=quantile(absolute, 0.95),
        spearman=spearman(*pairs),
        kendall=kendall(*pairs),
    )


def _quantile_errors(predicted: RunRecord, repeats: Sequence[RunRecord]) -> tuple[QuantileError, ...]:
    predicted_jcts = [job.jct_s for job in finished_jobs(predicted)]
    samples = [[job.jct_s for job in finished_jobs(run)] for run in repeats]
    errors = []
    for share in QUANTILE_GRID:
        observed_s = mean([value for sample in samples if (value := quantile(sample, share)) is not None])
        predicted_s = quantile(predicted_jcts, share)
        errors.append(QuantileError(share, predicted_s, observed_s, relative_error(predicted_s, observed_s)))
    return tuple(errors)
