"""`emugpu compare`: run each policy in the simulator and on a cluster, and compare the JCTs.

Each policy has a predicted run (simulated, virtual time) and one or more observed runs: on a local emulated cluster (one sharing
manager per node, one process per job, the clock of your choice), or with --on kubernetes on the cluster of your kubeconfig,
where the jobs are EmuJobs and `emugpu scheduler` schedules them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import replace

from emugpu.comparison.arguments import add_arguments
from emugpu.comparison.on_kubernetes import add_kubernetes, refuse_kubernetes_options, run_on_kubernetes
from emugpu.comparison.runs import load, meta_of, observed_title, write_files, write_results
from emugpu.terminal.console import ProgressBars
from emulator_runtime.domain.errors import InputError
from scheduler_sims.clusters.local import LocalOptions, check_programs
from scheduler_sims.experiment import Experiment
from scheduler_sims.record import RunRecord

DEFAULT_SPEED = 10.0
MOST_REPEATS = 1000


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `compare` to the front door's commands."""
    parser = subparsers.add_parser(
        "compare",
        help="compare policies: predicted and observed JCT",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    parser.add_argument("--repeat", type=int, default=1, help="observed runs per policy (default 1)")
    parser.add_argument(
        "--on",
        choices=("local", "kubernetes"),
        default="local",
        help="where observed runs take place (default: this machine)",
    )
    _add_local(parser.add_argument_group("on this machine"))
    add_kubernetes(parser.add_argument_group("on kubernetes"))
    parser.set_defaults(run=run)


def _add_local(parser: argparse._ArgumentGroup) -> None:
    parser.add_argument(
        "--speed",
        type=float,
        help=f"emulated seconds per second of this machine (default {DEFAULT_SPEED:g}; 1 with --warp or programs; 1: real time)",
    )
    parser.add_argument(
        "--warp",
        action="store_true",
        help="skip the time in which all jobs wait; --speed applies between the skips",
    )
    parser.add_argument(
        "--standby",
        type=int,
        default=LocalOptions().standby,
        help="job processes that are started ahead of time (default %(default)s)",
    )
    parser.add_argument(
        "--realtime",
        action="store_true",
        help="give job processes real-time priority (SCHED_FIFO), for machines with other load; needs CAP_SYS_NICE",
    )


def run(args: argparse.Namespace) -> int:
    """Returns 0, or 1 if a job failed. Raises errors of the tree, KeyboardInterrupt after Ctrl-C or SIGTERM."""
    if not 1 <= args.repeat <= MOST_REPEATS:
        raise InputError("--repeat", f"must be from 1 to {MOST_REPEATS}, not {args.repeat}")
    if args.on == "kubernetes":
        return run_on_kubernetes(args)
    refuse_kubernetes_options(args)
    return _run_locally(args)


def _run_locally(args: argparse.Namespace) -> int:
    experiment, titles = load(args)
    real = args.warp or any(job.program is not None for job in experiment.workload.jobs)
    default = LocalOptions().speed if real else DEFAULT_SPEED
    speed = default if args.speed is None else args.speed
    if not 1e-3 <= speed <= 1e4:
        raise InputError("--speed", f"must be from 0.001 to 10000, not {speed:g}")
    if args.standby < 1:
        raise InputError("--standby", f"must be at least 1, not {args.standby}")
    options = LocalOptions(
        speed=speed,
        warp=args.warp,
        standby=args.standby,
        profiles=str(args.profiles.resolve()) if args.profiles else "",
        realtime=args.realtime,
    )
    check_programs(experiment.workload.jobs, options)
    scaled = f"{speed:g} emulated seconds per second"
    between = "warp" if speed == default else f"warp, between jumps {scaled}"
    meta = meta_of(args, experiment, between if args.warp else f"scaled, {scaled}")
    runs: list[RunRecord] = []
    try:
        with ProgressBars(explain=args.explain) as bars:
            for run in _runs(experiment, titles, options, args.repeat, bars):
                runs.append(run)
    except BaseException:  # Ctrl-C too
        if any(run.repeat for run in runs):  # what was observed may have taken hours
            write_files(args, runs, meta)
        raise
    return write_results(args, runs, meta)


def _runs(
    experiment: Experiment, titles: Mapping[str, str], options: LocalOptions, repeats: int, bars: ProgressBars
) -> Iterator[RunRecord]:
    """Each policy's predicted run (repeat 0), then its observed runs."""
    jobs = len(experiment.workload.jobs)
    for policy, title in titles.items():
        bar = bars.bar(f"{title}: predicted", jobs)
        yield replace(experiment.simulate(policy, progress=bar.update, explain=bar.explain), policy=title)
        for repeat in range(1, repeats + 1):
            bar = bars.bar(observed_title(title, repeat, repeats), jobs)
            run = experiment.observe(
                policy, options, repeat=repeat, progress=bar.update, explain=bar.explain, notify=bar.describe
            )
            yield replace(run, policy=title)
