"""`emugpu workload describe`: how many jobs, how large, how long, how often, from whom, and the load on a cluster."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from emugpu.comparison.arguments import folder

REPORT = "report.html"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `workload describe`."""
    parser = commands.add_parser("describe", help="show what a workload is like", description=__doc__)
    parser.add_argument("workload", type=Path, metavar="WORKLOAD.csv", help="the jobs, one per row (or .parquet)")
    parser.add_argument(
        "--cluster", type=Path, metavar="CLUSTER.yaml", help="for the load, and for the durations of models"
    )
    parser.add_argument("--profiles", type=Path, metavar="FILE.json", help="profiles in addition to the bundled ones")
    parser.add_argument("--out", type=folder, metavar="DIR", help=f"folder for {REPORT} with pictures")
    parser.add_argument("--json", action="store_true", help="print JSON (times in seconds) instead of tables")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the description; 0. Raises InputError."""
    from emugpu.comparison.runs import check_out
    from emugpu.terminal.console import result_console
    from emugpu.workload.description_page import render, write_page
    from scheduler_sims.inputs.cluster_file import load_cluster
    from scheduler_sims.inputs.description import describe, gangs_of, measure
    from scheduler_sims.inputs.workload import load_workload

    workload = load_workload(args.workload, args.profiles)
    cluster = load_cluster(args.cluster, workload.profiles.catalogue) if args.cluster is not None else None
    if args.out is not None:
        check_out(args.out, [("the workload", args.workload)])
    measures = measure(workload, cluster)
    description = describe(measures, gangs_of(workload), cluster)
    if args.out is not None:
        write_page(args.out / REPORT, description, measures, workload.name)
    if args.json:
        print(json.dumps(description.as_dict(), indent=2))
        return 0
    result_console().print(render(description, workload.name))
    if args.out is not None:
        print(f"report: {args.out / REPORT}")
    return 0
