"""`emugpu simulate`: simulate each policy in virtual time; thousands of jobs take about a second."""

from __future__ import annotations

import argparse
from dataclasses import replace

from emugpu.comparison.arguments import add_arguments


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `simulate` to the front door's commands."""
    parser = subparsers.add_parser("simulate", help="predict JCTs in virtual time", description=__doc__)
    add_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Returns 0, or 1 if a job failed. Raises errors of the tree."""
    from emugpu.comparison.runs import load, meta_of, write_results  # `--help` doesn't wait for the simulator
    from emugpu.terminal.console import ProgressBars

    experiment, titles = load(args)
    runs = []
    with ProgressBars(explain=args.explain) as bars:
        for policy, title in titles.items():
            bar = bars.bar(f"{title}: predicted", len(experiment.workload.jobs))
            run = experiment.simulate(policy, progress=bar.update, explain=bar.explain)
            runs.append(replace(run, policy=title))
    return write_results(args, runs, meta_of(args, experiment, "simulated only"))
