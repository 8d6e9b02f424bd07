"""What may make a comparison say less than it seems to: asked in one place, shown at the top of every report."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler_sims.reports.comparison import Comparison, Observed, PolicyComparison
from scheduler_sims.reports.formats import list_some, percent, seconds

LAG_SHARE_OF_MEAN_JCT = 0.01
"""A deadline missed by more than this share of the mean JCT (at the 99th percentile) can change the result visibly."""

FIX = "use --warp, a slower clock, or a machine with less other work"

MOST_FAILURES = 20
"""How many failed jobs a report names before it points to jobs.csv."""

BEFORE_EACH_RUN = ("decide", "start", "stop")
"""Lags that come between the end of one job and the start of the next; they add up for every job that waits for devices."""
LATE_SHARE_OF_RUN = 0.01
"""Jobs that start later than the simulator's by more than this share of their run time shift the mean JCT by about as much."""


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
    yield from _late_starts(policy.policy, policy.observed)
    for kind, lag in policy.observed.lag.items():
        if lag.p99_s > LAG_SHARE_OF_MEAN_JCT * jct_s:
            yield (
                f"{policy.policy}: the {policy.observed.cluster} cluster was late: {kind} lag p99 {seconds(lag.p99_s)} s is "
                f"{percent(lag.p99_s / jct_s, signed=False)} of the mean JCT; {FIX}"
            )


def _late_starts(policy: str, observed: Observed) -> Iterator[str]:
    """Small lags that add up. A JCT of 30 s of which 20 s are waiting is three runs of 10 s, one after the other on a device;
    each begins late, so a lag of 0.2 s per start makes the JCT 0.6 s longer: 2%, which is 0.2 s / 10 s."""
    figures = observed.figures
    run_s = (figures.mean_jct_s or 0.0) - (figures.mean_queueing_delay_s or 0.0)
    jobs = sum(repeat.finished for repeat in observed.repeats)
    lag_s = sum(lag.count * lag.p50_s for kind, lag in observed.lag.items() if kind in BEFORE_EACH_RUN) / max(1, jobs)
    if lag_s > LATE_SHARE_OF_RUN * run_s:
        yield (
            f"{policy}: this host was too busy to be exact: decisions and process starts delayed each job by {seconds(lag_s)} s, "
            f"{percent(lag_s / run_s, signed=False)} of its mean run time; {FIX}"
        )


def _jobs(names: list[str] | tuple[str, ...]) -> str:
    return "1 job" if len(names) == 1 else f"{len(names)} jobs"
