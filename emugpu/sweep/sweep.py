"""`emugpu sweep`: simulate policies under several loads with several seeds, in parallel, and compare them.

The jobs are generated, or a trace's. The same seed gives all policies the same jobs, so that they are compared pair by pair.
With the same --out a sweep goes on where it ended, also with more loads, seeds or policies.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from emugpu.comparison.arguments import folder
from emulator_runtime.domain.errors import InputError

if TYPE_CHECKING:
    from emugpu.sweep.evaluation import Outcome
    from emugpu.sweep.plan import Point, Sweep

T = TypeVar("T")
_SEEDS = 5
_TABLE_WIDTH = 120
_MOST_FAILURES = 5


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `sweep` to the front door's commands."""
    parser = subparsers.add_parser(
        "sweep",
        help="compare policies over loads and seeds, in parallel",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="exit codes: 1 if a point failed, 2 for bad input, 130 interrupted, with what is done kept. See docs/sweeps.md.",
    )
    parser.add_argument(
        "workload",
        type=Path,
        nargs="?",
        metavar="WORKLOAD.csv",
        help="a trace, or .parquet (default: jobs are generated)",
    )
    parser.add_argument("--cluster", type=Path, required=True, metavar="CLUSTER.yaml", help="nodes and costs")
    parser.add_argument(
        "--policy",
        action="append",
        required=True,
        metavar="NAME",
        help="a policy, as for `emugpu simulate`; alternatives of an option: las:threshold_s=300|3000. Repeat it for several; "
        "the first is the baseline",
    )
    parser.add_argument(
        "--load",
        type=float,
        nargs="+",
        metavar="L",
        help="loads: 0.8 is 80%% of the cluster's GPUs (default: 0.8; a trace as it is)",
    )
    parser.add_argument("--seeds", type=int, default=_SEEDS, metavar="N", help=f"seeds 0 to N - 1 (default {_SEEDS})")
    parser.add_argument(
        "--estimates",
        nargs="+",
        default=["oracle"],
        metavar="KIND",
        help="oracle, error:SIGMA or none (default oracle)",
    )
    parser.add_argument(
        "--kind",
        metavar="ARRIVALS/MIX",
        help="what is generated (default poisson/philly; see `emugpu workload generate --help`)",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="jobs to generate (default 1000), or to take of a trace, from where the seed says",
    )
    parser.add_argument(
        "--sample",
        type=float,
        default=1.0,
        metavar="PART",
        help="the part of the trace's jobs that the seed chooses (default 1)",
    )
    parser.add_argument(
        "--warm-up",
        type=int,
        default=0,
        metavar="N",
        help="the first N jobs don't count for figures of jobs (default 0)",
    )
    parser.add_argument("--cool-down", type=int, default=0, metavar="N", help="neither do the last N (default 0)")
    parser.add_argument(
        "--gpus-per-node",
        type=int,
        default=8,
        metavar="N",
        help="generated jobs with more are split over nodes (default 8)",
    )
    parser.add_argument("--profiles", type=Path, metavar="FILE.json", help="profiles in addition to the bundled ones")
    parser.add_argument("--workers", type=int, metavar="N", help="processes (default: one for each core)")
    parser.add_argument(
        "--out", type=folder, default=Path("out/sweep"), metavar="DIR", help="results (default: out/sweep)"
    )
    parser.add_argument(
        "--parquet", action="store_true", help="write the tables as Parquet, too (results.parquet beside results.csv)"
    )
    parser.add_argument("--json", action="store_true", help="print summary.json instead of the table")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Returns 0, or 1 if a point failed. Raises errors of the tree."""
    from emugpu.comparison.runs import check_out, check_parquet
    from emugpu.sweep.files import JOURNAL, REPORT
    from emugpu.sweep.running import SweepJournal, run_sweep
    from emugpu.terminal.console import ProgressBars

    check_parquet(args)
    sweep = _sweep(args)
    check_out(
        args.out, [("the cluster file", args.cluster), *([("the workload", args.workload)] if args.workload else [])]
    )
    journal = SweepJournal(args.out / JOURNAL, sweep)
    points, known = list(sweep.points()), journal.read()
    outcomes = {point: known[point] for point in points if point in known}
    with ProgressBars(explain=False, unit="points") as bars:
        bar = bars.bar("sweep", len(points))
        bar.update(len(outcomes))

        def ended(point: Point, outcome: Outcome) -> None:
            bar.update(len(outcomes))
            name = f"{point.condition}, {point.policy}, seed {point.seed}"
            bars.note(f"{name}: {outcome.error or 'done'}")

        try:
            run_sweep(sweep, journal, outcomes, args.workers, ended)
        except KeyboardInterrupt:
            bars.say(f"{len(outcomes)} points are done and kept; the same command goes on with the others")
            raise
    failed = _write(args, sweep, outcomes)
    if not args.json:
        print(f"report: {args.out / REPORT}")
    return failed


def _write(args: argparse.Namespace, sweep: Sweep, outcomes: Mapping[Point, Outcome]) -> int:
    """Files and output; 1 if a point failed, else 0."""
    from emugpu.sweep.files import REPORT, summary, write_results, write_summary
    from emugpu.sweep.page import terminal_table, write_page
    from emugpu.sweep.statistics import lines
    from emugpu.terminal.console import result_console

    found = lines(sweep, outcomes)
    values = summary(sweep, found, outcomes)
    write_results(args.out, sweep, outcomes, parquet=args.parquet)
    write_summary(args.out, values)
    subject = args.workload.name if args.workload else sweep.inputs.recipe.kind if sweep.inputs.recipe else ""
    write_page(args.out / REPORT, sweep, found, f"Sweep over {subject}")
    if args.json:
        print(json.dumps(values, indent=2))
    else:
        result_console(_TABLE_WIDTH).print(terminal_table(sweep, found, outcomes))
    for failure in values["failed"][:_MOST_FAILURES]:
        print(f"failed: {failure['policy']}, seed {failure['seed']}: {failure['error']}", file=sys.stderr)
    return int(bool(values["failed"]))


def _sweep(args: argparse.Namespace) -> Sweep:
    """The sweep that the arguments describe, with all inputs checked that can be without running it. Raises InputError."""
    from emugpu.sweep.evaluation import check
    from emugpu.sweep.plan import AS_IT_IS, Inputs, Sweep, expanded
    from scheduler_sims.generators.generate import DEFAULT_KIND, Recipe

    args.workers = (os.cpu_count() or 1) if args.workers is None else args.workers
    for name, least in (("workers", 1), ("seeds", 1), ("warm_up", 0), ("cool_down", 0), ("gpus_per_node", 1)):
        if getattr(args, name) < least:
            raise InputError(f"--{name.replace('_', '-')}", f"must be at least {least}, not {getattr(args, name)}")
    loads = _distinct("--load", args.load or [0.8 if args.workload is None else AS_IT_IS])
    if args.load and not all(0 < load < float("inf") for load in loads):
        raise InputError("--load", "must be above 0: 0.8 is 80% of the cluster's GPUs")
    generated = args.workload is None
    if not generated and args.kind:
        raise InputError("--kind", "says what is generated; leave it out with a trace")
    recipe = Recipe(args.kind or DEFAULT_KIND, 1000 if args.jobs is None else args.jobs) if generated else None
    inputs = Inputs(
        cluster=args.cluster,
        workload=args.workload,
        recipe=recipe,
        gpus_per_node=args.gpus_per_node,
        jobs=None if generated else args.jobs,
        sample=args.sample,
        profiles=args.profiles,
        warm_up=args.warm_up,
        cool_down=args.cool_down,
    )
    chance = generated or args.jobs is not None or args.sample != 1
    if args.seeds > 1 and not chance and not any(each.startswith("error") for each in args.estimates):
        raise InputError(
            "--seeds",
            "all seeds would give the same runs of this trace; --jobs N or --sample PART vary it, or --seeds 1",
        )
    sweep = Sweep(inputs, loads, range(args.seeds), _distinct("--estimates", args.estimates), expanded(args.policy))
    check(sweep)
    return sweep


def _distinct(flag: str, values: Sequence[T]) -> Sequence[T]:
    if len(set(values)) < len(values):
        raise InputError(flag, "names a value twice")
    return values
