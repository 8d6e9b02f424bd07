"""`emugpu explain`: why a job of a finished run waited, from the files in the run's folder.

RUN is the --out folder of `emugpu simulate` or `emugpu compare`: jobs.csv and spans.csv say who held which device when.
For a job on a Kubernetes cluster: `kubectl emugpu explain`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from emulator_runtime.domain.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from scheduler_sims.reports.files import JobRow
    from scheduler_sims.reports.spans_file import SpanRow


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `explain` to the front door's commands."""
    parser = subparsers.add_parser(
        "explain",
        help="say why a job of a run waited",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder with jobs.csv, spans.csv and summary.json")
    parser.add_argument("job", metavar="JOB", help="the job's id")
    parser.add_argument("--policy", metavar="NAME", help="which policy's run (default: all)")
    parser.add_argument("--cluster", metavar="KIND", help="simulated, local or kubernetes (default: all)")
    parser.add_argument("--json", action="store_true", help="print JSON (seconds)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the explanations; 0. Raises InputError."""
    from emugpu.comparison.runs import JOBS, SPANS
    from scheduler_sims.reports.explanation import explain, sentences
    from scheduler_sims.reports.files import read_jobs_csv
    from scheduler_sims.reports.spans_file import read_spans_csv

    jobs = read_jobs_csv(args.folder / JOBS)
    wanted = [job for job in jobs if job.job_id == args.job]
    if not wanted:
        raise UnknownNameError(str(args.folder / JOBS), "job", args.job, {job.job_id for job in jobs})
    for name in ("policy", "cluster"):
        if (value := getattr(args, name)) is not None:
            known = list(dict.fromkeys(getattr(job, name) for job in wanted))
            if value not in known:
                raise UnknownNameError(f"--{name}", name, value, known)
            wanted = [job for job in wanted if getattr(job, name) == value]
    spans, gpus = read_spans_csv(args.folder / SPANS), _gpus(args.folder)
    found = [
        explain(
            job,
            [other for other in jobs if _run_of(other) == _run_of(job)],
            [span for span in spans if _run_of(span) == _run_of(job)],
            gpus,
        )
        for job in wanted
    ]
    if args.json:
        print(json.dumps([one.as_dict() for one in found], indent=2))
    else:
        print("\n\n".join("\n".join(sentences(one)) for one in found))
    return 0


def _run_of(row: JobRow | SpanRow) -> tuple[str, str, int]:
    return row.policy, row.cluster, row.repeat


def _gpus(folder: Path) -> int:
    """The cluster's GPUs, from the summary. Raises InputError."""
    from emugpu.comparison.runs import SUMMARY

    path = folder / SUMMARY
    try:
        return int(json.loads(path.read_text(encoding="utf-8"))["meta"]["gpus"])
    except OSError as error:
        raise InputError(str(path), f"can't be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(str(path), "is no summary of a run: meta.gpus is missing; write it again") from error
