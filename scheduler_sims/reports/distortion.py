"""What may make a comparison say less than it seems to: asked in one place, shown at the top of every report."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler_sims.reports.comparison import Comparison, PolicyComparison
from scheduler_sims.reports.formats import list_some, percent, seconds

LAG_SHARE_OF_MEAN_JCT = 0.01
"""A deadline missed by more than this share of the mean JCT (at the 99th percentile) can move the result visibly."""

MOST_FAILURES = 20
"""How many failed jobs a report names before it points to jobs.csv."""


def warnings(comparison: Comparison) -> tuple[str, ...]:
    """One sentence per thing that distorts, by policy; empty if nothing is known to."""
    return tuple(line for policy in comparison.policies for line in _of_policy(policy))


def failures(comparison: Comparison, most: int = MOST_FAILURES) -> tuple[str, ...]:
    """One line per policy and failed job: the reason, and the runs in which it failed."""
    seen: dict[str, list[str]] = {}
    for failure in (failure for policy in comparison.policies for failure in policy.failures):
        line = f"{failure.policy}, {failure.job_id}: {failure.reason or 'no reason given'}"
        seen.setdefault(line, []).append(f"{failure.cluster} #{failure.repeat}")
    lines = [f"{line} ({list_some(where)})" for line, where in seen.items()]
    rest = len(lines) - most
    return (*lines[:most], f"and {rest} more; jobs.csv names them all") if rest > 0 else tuple(lines)


def _of_policy(policy: PolicyComparison) -> Iterator[str]:
    yield from _late(policy)
    if policy.failures:
        failed = list(dict.fromkeys(failure.job_id for failure in policy.failures))
        yield f"{policy.policy}: {_jobs(failed)} failed ({list_some(failed)}); the JCT figures leave failed jobs out"
    if policy.unmatched:
        yield (
            f"{policy.policy}: {_jobs(policy.unmatched)} finished only in the prediction or only when observed "
            f"({list_some(policy.unmatched)}); the two means are over different jobs"
        )
    for note in policy.notes:
        yield f"{policy.policy}: {note}"


def _late(policy: PolicyComparison) -> Iterator[str]:
    if policy.observed is None or not policy.observed.figures.mean_jct_s:
        return
    jct_s = policy.observed.figures.mean_jct_s
    for kind, lag in policy.observed.lag.items():
        if lag.p99_s > LAG_SHARE_OF_MEAN_JCT * jct_s:
            yield (
                f"{policy.policy}: the {policy.observed.cluster} cluster was late: {kind} lag p99 {seconds(lag.p99_s)} s is "
                f"{percent(lag.p99_s / jct_s, signed=False)} of the mean JCT; use a slower clock or fewer jobs at once"
            )


def _jobs(names: list[str] | tuple[str, ...]) -> str:
    return "1 job" if len(names) == 1 else f"{len(names)} jobs"
