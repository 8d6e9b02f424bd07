"""Inputs and output files of `emugpu compare` and `emugpu simulate`."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emugpu.terminal.console import result_console
from emulator_runtime.domain.errors import InputError
from scheduler_sims.experiment import Experiment
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.inputs.fit import Remedy
from scheduler_sims.inputs.table_file import PARQUET, pyarrow_for, write_parquet_beside
from scheduler_sims.policies.resolve import policy_file
from scheduler_sims.record import RunRecord
from scheduler_sims.reports.comparison import Comparison, compare
from scheduler_sims.reports.files import summary_dict, write_jobs_csv, write_summary
from scheduler_sims.reports.page.html import write_report
from scheduler_sims.reports.run_tables import write_interruptions_csv, write_services_csv
from scheduler_sims.reports.spans_file import write_spans_csv
from scheduler_sims.reports.table import print_comparison

THE_CLUSTER = "as its pools are"
"""The cluster's description in reports of a comparison without a cluster file."""
JOBS, SPANS, SUMMARY, REPORT = "jobs.csv", "spans.csv", "summary.json", "report.html"
INTERRUPTIONS, SERVICES = "interruptions.csv", "services.csv"
"""Written where nodes fail, and where there are services."""
_TABLE_WIDTH = 100
_SHARES = frozenset(("requests", "in_time", "promised"))
_WHOLE = frozenset(("repeat", "preemptions", "kept_steps"))


def load(
    args: argparse.Namespace, spec: ClusterSpec | None = None, remedy: Remedy | None = None
) -> tuple[Experiment, dict[str, str]]:
    """Reads and checks all inputs. Returns the experiment and the title of each `--policy` value.

    `spec`: the cluster if no file describes it. `remedy`: the advice for a job that doesn't fit on it.
    """
    cluster = args.cluster or spec
    if cluster is None:
        raise InputError("--cluster", "is missing; only --on kubernetes works without it, with the cluster as it is")
    experiment = Experiment.load(
        args.workload,
        cluster,
        estimates=args.estimates,
        seed=args.seed,
        profiles=args.profiles,
        stretch=args.stretch,
        remedy=remedy,
    )
    if args.services is not None:
        experiment = experiment.serving(args.services, args.stretch)
    titles = experiment.check_policies(args.policy)
    check_parquet(args)
    if args.out is not None:
        check_out(args.out, inputs_of(args), parquet=args.parquet)
    return experiment, titles


def check_parquet(args: argparse.Namespace) -> None:
    """Raises InputError before a run if --parquet can't be followed."""
    if args.parquet:
        pyarrow_for("--parquet")
        if args.out is None:
            raise InputError("--parquet", "needs --out, where the tables are written")


def check_out(out: Path, inputs: Sequence[tuple[str, Path]] = (), *, parquet: bool = False) -> None:
    """Creates the output directory before a run, which may take long. `parquet`: the tables are written as Parquet, too.

    Raises InputError if it can't, and if a result would replace one of `inputs`, pairs of a description and a path.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError("--out", f"can't make the directory {out}: {error.strerror}") from error
    tables = (JOBS, SPANS, INTERRUPTIONS, SERVICES)
    beside = [str(Path(name).with_suffix(PARQUET)) for name in tables] if parquet else []
    for target in (out / name for name in (*tables, SUMMARY, REPORT, *beside)):
        if target.is_dir():
            raise InputError("--out", f"{target} is a directory; choose another output folder")
        for what, path in inputs:
            if _same_file(path, target):
                raise InputError("--out", f"{target} is {what} of this run; choose another output folder")
    try:
        tempfile.TemporaryFile(dir=out).close()
    except OSError as error:
        raise InputError("--out", f"can't write to {out}: {error.strerror}; choose another output folder") from error


def inputs_of(args: argparse.Namespace) -> list[tuple[str, Path]]:
    """Descriptions and paths of the files that the run reads."""
    policies = [("a policy file", path) for text in args.policy if (path := policy_file(text)) is not None]
    named = (
        ("the workload", args.workload),
        ("the cluster file", args.cluster),
        ("the profiles file", args.profiles),
        ("the services file", getattr(args, "services", None)),
        ("the kubeconfig", getattr(args, "kubeconfig", None)),
    )
    return [*((what, path) for what, path in named if path is not None), *policies]


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)  # also through links
    except OSError:
        return False  # one of them doesn't exist


def meta_of(args: argparse.Namespace, experiment: Experiment, clock: str) -> dict[str, Any]:
    """Properties of the comparison, for the report's header and the summary."""
    return experiment.described(str(args.workload), str(args.cluster or THE_CLUSTER), clock, args.stretch)


def result_type(column: str) -> type:
    """How the Parquet files have a column of the tables: times as float, counts as int, others as str."""
    return float if column.endswith("_s") or column in _SHARES else int if column in _WHOLE else str


def write_results(args: argparse.Namespace, runs: Sequence[RunRecord], meta: dict[str, Any]) -> int:
    """Prints the results and writes the files. Returns 1 if a job failed, else 0."""
    comparison = compare(runs)
    try:
        if args.json:
            print(json.dumps(summary_dict(comparison, meta), indent=2), flush=True)
        else:
            print_comparison(comparison, result_console(_TABLE_WIDTH))
    finally:  # if the output can't be printed, the files have the results
        _write_files(args, runs, meta, comparison)
    if args.out is not None and not args.json:
        print(f"report: {args.out / REPORT}   jobs: {args.out / JOBS}")
    return int(any(job.status == "failed" for run in runs for job in run.jobs))


def write_files(args: argparse.Namespace, runs: Sequence[RunRecord], meta: dict[str, Any]) -> None:
    """Writes report, jobs, spans and summary of the runs so far into the directory of --out, if given."""
    _write_files(args, runs, meta, compare(runs))


def _write_files(
    args: argparse.Namespace, runs: Sequence[RunRecord], meta: dict[str, Any], comparison: Comparison
) -> None:
    if args.out is not None:
        tables = {JOBS: write_jobs_csv, SPANS: write_spans_csv}
        if any(run.interruptions for run in runs):
            tables[INTERRUPTIONS] = write_interruptions_csv
        if any(run.services for run in runs):
            tables[SERVICES] = write_services_csv
        for name, write in tables.items():
            write(args.out / name, runs)
            if getattr(args, "parquet", False):  # reports of experiments don't have the option
                write_parquet_beside(args.out / name, result_type)
        write_summary(args.out / SUMMARY, comparison, meta)
        write_report(args.out / REPORT, runs, comparison, meta)


def observed_title(title: str, repeat: int, repeats: int) -> str:
    """The title of an observed run's progress bar."""
    return f"{title}: observed" + (f" {repeat}/{repeats}" if repeats > 1 else "")
