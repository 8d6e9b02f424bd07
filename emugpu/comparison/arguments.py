"""Arguments of `emugpu compare` and `emugpu simulate`.

They are apart from what uses them, so that `--help` doesn't wait for the imports of simulator and reports.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of every command that runs policies."""
    parser.add_argument("workload", type=Path, metavar="WORKLOAD.csv", help="the jobs, one per row (or .parquet)")
    parser.add_argument("--cluster", type=Path, metavar="CLUSTER.yaml", help="nodes and costs")
    parser.add_argument(
        "--policy",
        action="append",
        required=True,
        metavar="NAME",
        help="a policy (see `emugpu policies`), with options as las:threshold_s=300, or your own as my_policy.py:MyPolicy; "
        "repeat it for several",
    )
    parser.add_argument(
        "--estimates",
        default="oracle",
        metavar="KIND",
        help="what policies know of run times: oracle, error:SIGMA (such as error:0.2) or none (default oracle)",
    )
    parser.add_argument(
        "--stretch",
        type=float,
        default=1.0,
        metavar="F",
        help="multiply all submit times and durations, so that the costs of starting jobs matter less (default 1)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of all random numbers (default 0)")
    parser.add_argument(
        "--profiles", type=Path, metavar="FILE.json", help="profiles to use in addition to the bundled ones"
    )
    parser.add_argument(
        "--services",
        type=Path,
        metavar="FILE.yaml",
        help="inference services, whose replicas run beside the jobs and follow the requests (simulated and on this machine)",
    )
    parser.add_argument(
        "--out", type=folder, metavar="DIR", help="directory for report.html, jobs.csv and summary.json"
    )
    parser.add_argument(
        "--parquet",
        action="store_true",
        help="write the tables of --out as Parquet, too (jobs.parquet beside jobs.csv)",
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON instead of the table")
    parser.add_argument("--explain", action="store_true", help="print each policy's reasons on stderr")


def folder(text: str) -> Path:
    """The type of --out for argparse: a path that is not empty."""
    if not text:
        raise argparse.ArgumentTypeError("is empty; name a folder ('.' is this one)")
    return Path(text)
