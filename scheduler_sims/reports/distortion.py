"""Finds what may make a comparison unreliable. Every report shows these warnings at the top."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler_sims.reports.comparison import Comparison, Observed, PolicyComparison
from scheduler_sims.reports.formats import list_some, percent, seconds

LAG_SHARE_OF_MEAN_JCT = 0.01
"""If the 99th percentile of the lag is above this share of the mean JCT, the lag can change the result visibly."""

FIX = "use --warp, a slower clock, or a machine with less other work"

MOST_FAILURES = 20
"""How many failed jobs a report lists; the others are only in jobs.csv."""

BEFORE_EACH_RUN = ("decide", "start", "stop")
"""Kinds of lag between the end of one job and the start of the next; they add up for jobs that wait for devices."""
LATE_SHARE_OF_RUN = 0.01
"""If jobs start later than in the simulation by more than this share of their run time, the mean JCT grows by about as much."""


def warnings(comparison: Comparison) -> tuple[str, ...]:
    """One sentence for each possible distortion, ordered by policy; empty if there is none."""
    return tuple(line for policy in comparison.policies for line in _of_policy(policy))


def failures(comparison: Comparison, most: int = MOST_FAILURES) -> tuple[str, ...]:
    """One line for each policy and failed job: the reason, and the runs in which it failed."""
    runs_by_line: dict[str, list[str]] = {}
    for failure in (failure for policy in comparison.policies for failure in policy.failures):
        line = f"{failure.policy}, {failure.job_id}: {failure.reason or 'no reason given'}"
        runs_by_line.setdefault(line, []).append(f"{failure.cluster} #{failure.repeat}")
    lines = [f"{line} ({list_some(runs)})" for line, runs in runs_by_line.items()]
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
    """Small lags that add up. Example: a JCT of 30 s consists of 20 s in the queue behind two runs of 10 s, and a run of 10 s.
    All three runs start late, so a lag of 0.2 s for each start makes the JCT 0.6 s longer: 2%, the same as 0.2 s / 10 s."""
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
