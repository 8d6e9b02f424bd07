"""How far the simulated cluster may be trusted: predicted beside observed JCTs of the bundled study, in both kinds of time.

Each policy is predicted once and observed several times on real processes. Errors are (predicted - observed) / observed.
"spread" is (max - min) / mean of the repeats' mean JCTs: an error within it says nothing against the prediction. "quantiles"
is the largest error over the 5% to 95% quantiles of the sorted JCTs, "jobs" the 95th percentile of the single jobs' absolute
errors. "step lag" is the 99th percentile of how late steps ended, in emulated time; "wall" is how long one observed run took.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from scheduler_sims.clusters.local import LocalOptions
from scheduler_sims.experiment import Experiment
from scheduler_sims.record import RunRecord
from scheduler_sims.reports.comparison import SIMULATED, PolicyComparison, compare

STUDY = Path(__file__).parents[2] / "examples" / "allox-40"
POLICIES = ("drf-fifo", "drf-sjf", "allox", "sjf")
QUICK_POLICIES, QUICK_JOBS = ("drf-fifo", "allox"), 12
SPEED = 10.0
REPEATS = 3
TIE = 0.005


def main(argv: list[str]) -> int:
    """Print a line for each policy and clock; 1 where a job failed, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks predicted_observed", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"one repeat, warp only, {QUICK_JOBS} jobs")
    parser.add_argument("--repeats", type=int, default=REPEATS, help=f"observed runs of each (default {REPEATS})")
    parser.add_argument("--speed", type=float, default=SPEED, help=f"speed of the scaled clock (default {SPEED:g})")
    options = parser.parse_args(argv)
    experiment = Experiment.load(STUDY / "workload.csv", STUDY / "cluster.yaml")
    if options.quick:
        few = replace(experiment.workload, jobs=experiment.workload.jobs[:QUICK_JOBS])
        experiment = Experiment.of(few, experiment.spec, ("oracle", 0))
    clocks = {"warp": LocalOptions(warp=True)}
    if not options.quick:
        clocks[f"{options.speed:g} x"] = LocalOptions(options.speed)
    repeats = 1 if options.quick else options.repeats
    jobs, gpus = len(experiment.workload.jobs), experiment.spec.gpus
    print(f"{jobs} jobs, {gpus} GPUs, repeats: {repeats}, load average {os.getloadavg()[0]:.1f}\n{HEADER}", flush=True)
    failed = 0
    for clock, local in clocks.items():
        runs: list[RunRecord] = []
        for policy in QUICK_POLICIES if options.quick else POLICIES:
            own = [experiment.simulate(policy)]
            own += [experiment.observe(policy, local, repeat=number) for number in range(1, repeats + 1)]
            failed += print_policy(clock, compare(own).policies[0], own)
            runs += own
        print_ranking(clock, compare(runs).policies)
    return int(failed > 0)


HEADER = (
    f"{'clock':7}{'policy':10}{'predicted':>11}{'observed':>11}{'mean JCT':>10}{'spread':>9}"
    f"{'quantiles':>11}{'jobs':>9}{'step lag':>10}{'wall':>8}"
)


def print_policy(clock: str, outcome: PolicyComparison, runs: list[RunRecord]) -> int:
    """One line; answers how many jobs failed, each of which gets a line of its own."""
    for failure in outcome.failures:
        print(f"{clock:7}{outcome.policy:10}job {failure.job_id} failed, {failure.cluster}: {failure.reason}")
    if outcome.predicted is not None and outcome.observed is not None and outcome.error is not None:
        seconds = f"{outcome.predicted.mean_jct_s or 0:9.2f} s{outcome.observed.figures.mean_jct_s or 0:9.2f} s"
        spread = outcome.observed.spread["mean_jct_s"].relative if "mean_jct_s" in outcome.observed.spread else None
        error = outcome.error
        shares = [(error.by_figure["mean_jct"], 10), (spread, 9), (error.jct_quantiles_max_abs, 11)]
        shares += [(error.per_job.p95_abs, 9)]
        lag_s = outcome.observed.lag["step"].p99_s if "step" in outcome.observed.lag else 0.0
        wall_s = statistics.mean(run.wall_s for run in runs if run.cluster != SIMULATED)
        columns = "".join(percent(share, width) for share, width in shares)
        print(f"{clock:7}{outcome.policy:10}{seconds}{columns}{lag_s * 1000:7.1f} ms{wall_s:6.1f} s", flush=True)
    return len(outcome.failures)


def percent(share: float | None, width: int) -> str:
    """A share that may be undefined."""
    return f"{'-':>{width}}" if share is None else f"{share:+{width}.3%}"


def print_ranking(clock: str, outcomes: Iterable[PolicyComparison]) -> None:
    """Which policy is best, the question of every prediction; policies that are predicted within TIE of each other tie."""
    rows = [
        (outcome.policy, outcome.predicted.mean_jct_s or 0, outcome.observed.figures.mean_jct_s or 0)
        for outcome in outcomes
        if outcome.predicted is not None and outcome.observed is not None
    ]
    rows.sort(key=lambda row: row[2])
    wrong = [
        f"{name} before {later}"
        for index, (name, predicted, _) in enumerate(rows)
        for later, predicted_later, _ in rows[index + 1 :]
        if predicted > predicted_later * (1 + TIE)
    ]
    verdict = f"not predicted: {', '.join(wrong)}" if wrong else "as predicted"
    print(f"{clock:7}ranking by mean JCT: {' < '.join(name for name, *_ in rows)}, {verdict}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
