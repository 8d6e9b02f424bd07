"""`emugpu workload generate`: a workload by chance. The same seed gives the same file.

Arrivals: poisson, diurnal (least at midnight, most at noon), at-once. Mixes: philly (GPUs and durations as Gavel and Synergy
generate them after Microsoft's cluster), exponential (one GPU, an hour in the mean), uniform (1 to 8 GPUs, up to two hours).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from emulator_runtime.domain.errors import InputError
from scheduler_sims.generators.generate import DEFAULT_KIND, Recipe, jobs_at_load, jobs_at_rate
from scheduler_sims.inputs.cluster_file import load_cluster
from scheduler_sims.traces.importing import Choices, write_workload

_RATE = 60.0


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `workload generate`."""
    parser = commands.add_parser(
        "generate",
        help="make a workload by chance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kind", metavar="ARRIVALS/MIX", default=DEFAULT_KIND, help=f"(default {DEFAULT_KIND})")
    parser.add_argument("--jobs", metavar="N", type=int, default=1000, help="how many (default 1000)")
    parser.add_argument("--users", metavar="N", type=int, default=10, help="each job is of one of N users (default 10)")
    parser.add_argument("--rate", metavar="R", type=float, help=f"jobs an hour in the mean (default {_RATE:g})")
    parser.add_argument(
        "--load", metavar="L", type=float, help="instead: the rate at which they need this part of --cluster's GPUs"
    )
    parser.add_argument("--cluster", metavar="CLUSTER.yaml", type=Path, help="for --load")
    parser.add_argument(
        "--gpus-per-node", metavar="N", type=int, default=8, help="jobs with more span nodes (default 8)"
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="(default 0)")
    parser.add_argument(
        "--out", metavar="WORKLOAD.csv", type=Path, required=True, help="the workload to write (or .parquet)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Writes the file; 0. Raises InputError."""
    for name in ("rate", "load"):
        if (value := getattr(args, name)) is not None and not 0 < value < float("inf"):
            raise InputError(f"--{name}", f"must be above 0, not {value:g}")
    if args.gpus_per_node < 1:
        raise InputError("--gpus-per-node", f"must be at least 1, not {args.gpus_per_node}")
    if args.load is not None and (args.rate is not None or args.cluster is None):
        raise InputError("--load", "needs --cluster, for its GPUs, and no --rate")
    recipe = Recipe(args.kind, args.jobs, args.users)
    if args.load is None:
        rate = args.rate or _RATE
        jobs, at = jobs_at_rate(recipe, args.seed, rate), f"{rate:g} jobs an hour"
    else:
        gpus = load_cluster(args.cluster).gpus
        if not gpus:
            raise InputError("--cluster", "has no GPUs, so that there is no load")
        jobs, at = jobs_at_load(recipe, args.seed, args.load, gpus), f"load {args.load:g} of {gpus} GPUs"
    title = f"Generated: {args.kind}, {at}, seed {args.seed}"
    write_workload(args.out, title, jobs, Choices(gpus_per_node=args.gpus_per_node))
    print(f"{args.out}: {len(jobs):,} jobs")
    return 0
