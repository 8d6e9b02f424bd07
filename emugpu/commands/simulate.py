"""`emugpu simulate`: the predicted run of each policy only; virtual time, a second for thousands of jobs."""

from __future__ import annotations

import argparse
from dataclasses import replace

from emugpu.commands.console import ProgressBars
from emugpu.commands.runs import add_arguments, leave, load, meta_of


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `simulate` to the front door's commands."""
    parser = subparsers.add_parser("simulate", help="predict JCTs in virtual time", description=__doc__)
    add_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0: done, 1: a job failed. Raises errors of the tree."""
    experiment, titles = load(args)
    runs = []
    with ProgressBars(explain=args.explain) as bars:
        for policy, title in titles.items():
            bar = bars.bar(f"{title}: predicted", len(experiment.workload.jobs))
            run = experiment.simulate(policy, progress=bar.update, explain=bar.explain)
            runs.append(replace(run, policy=title))
    return leave(args, runs, meta_of(args, experiment, "simulated only"))
