"""`emugpu workload change`: a part of a workload, a sample of it, or the same jobs at another load.

The changes are made in this order: --after and --before, --fitting, --jobs, --sample, --load or --faster. Submissions then begin
at 0; all other columns stay as they are.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.job import Configuration
from scheduler_sims.generators.changes import Taken, at_load, everything, faster, from_zero, sample, window
from scheduler_sims.inputs.cluster_file import ClusterSpec, load_cluster
from scheduler_sims.inputs.description import gpu_seconds
from scheduler_sims.inputs.fit import misfit
from scheduler_sims.inputs.table_file import Table, read_table, write_table
from scheduler_sims.inputs.workload import Workload, column_type, load_workload

_DAY_S = 86_400.0
_SUBMIT = "submit_s"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `workload change`."""
    parser = commands.add_parser(
        "change",
        help="take a part of a workload, or change its load",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("workload", type=Path, metavar="WORKLOAD.csv", help="the jobs, one per row (or .parquet)")
    parser.add_argument(
        "--after", metavar="DAYS", type=float, default=0.0, help="without jobs submitted before, such as warm-up"
    )
    parser.add_argument(
        "--before", metavar="DAYS", type=float, default=float("inf"), help="without jobs submitted from then on"
    )
    parser.add_argument(
        "--fitting", metavar="CLUSTER.yaml", type=Path, help="without jobs that are larger than this cluster"
    )
    parser.add_argument("--jobs", metavar="N", type=int, help="successive jobs, from where the seed says")
    parser.add_argument("--sample", metavar="PART", type=float, default=1.0, help="each job with this probability")
    parser.add_argument(
        "--load",
        metavar="L",
        type=float,
        help="submissions faster or slower, so that they need this part of --cluster's GPUs",
    )
    parser.add_argument("--cluster", metavar="CLUSTER.yaml", type=Path, help="for --load")
    parser.add_argument("--faster", metavar="F", type=float, help="submissions F times as fast")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="(default 0)")
    parser.add_argument("--profiles", type=Path, metavar="FILE.json", help="profiles in addition to the bundled ones")
    parser.add_argument(
        "--out", metavar="CHANGED.csv", type=Path, required=True, help="the workload to write (or .parquet)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Writes the file; 0. Raises InputError."""
    if args.load is not None and (args.cluster is None or args.faster is not None):
        raise InputError("--load", "needs --cluster, for its GPUs, and no --faster")
    workload = load_workload(args.workload, args.profiles)
    taken = _taken(args, workload)
    _write(args.out, read_table(args.workload, "the workload"), workload.lines, taken)
    print(f"{args.out}: {len(taken):,} of {len(workload.jobs):,} jobs")
    return 0


def _taken(args: argparse.Namespace, workload: Workload) -> list[Taken]:
    jobs = everything([job.submit_s for job in workload.jobs])
    jobs = [one for one in jobs if args.after * _DAY_S <= one.submit_s < args.before * _DAY_S]
    if not jobs:
        raise InputError("--after", "and --before leave no job")
    if args.fitting is not None:
        jobs = _fitting(jobs, workload, load_cluster(args.fitting, workload.profiles.catalogue))
    if args.jobs is not None:
        jobs = window(jobs, args.jobs, args.seed)
    jobs = from_zero(sample(jobs, args.sample, args.seed))
    if args.faster is not None:
        return faster(jobs, args.faster)
    if args.load is not None:
        cluster = load_cluster(args.cluster, workload.profiles.catalogue)
        return at_load(jobs, gpu_seconds(workload, cluster), cluster.gpus, args.load)
    return jobs


def _fitting(jobs: Sequence[Taken], workload: Workload, cluster: ClusterSpec) -> list[Taken]:
    fits: dict[tuple[Configuration, ...], bool] = {}  # most jobs of a trace have one of a few shapes
    kept = []
    for one in jobs:
        job = workload.jobs[one.index]
        if job.configurations not in fits:
            fits[job.configurations] = not misfit(job, cluster)
        if fits[job.configurations]:
            kept.append(one)
    if not kept:
        raise InputError("--fitting", "all jobs are larger than that cluster")
    return kept


def _write(out: Path, table: Table, lines: Sequence[int], taken: Sequence[Taken]) -> None:
    """Writes these jobs of the workload only, at their new times. `lines`: where its jobs are in the table."""
    place = table.header.index(_SUBMIT) if _SUBMIT in table.header else len(table.header)
    header, cells = [*table.header[:place], _SUBMIT, *table.header[place + 1 :]], dict(table.rows)
    rows = (_at(cells[lines[one.index]], place, one.submit_s) for one in taken)
    write_table(out, {name: column_type(name) for name in header}, rows, table.comments)


def _at(cells: Sequence[str], place: int, submit_s: float) -> Sequence[str]:
    return [*cells[:place], f"{submit_s:.6f}".rstrip("0").rstrip("."), *cells[place + 1 :]]
