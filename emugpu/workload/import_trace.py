"""`emugpu workload import`: a published trace, or the input of another simulator, as a workload."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

from emulator_runtime.domain.errors import InputError, UnknownNameError
from emulator_runtime.profiles.catalogue import bundled_catalogue
from scheduler_sims.traces import FORMATS
from scheduler_sims.traces.importing import Choices, Tally, import_trace
from scheduler_sims.traces.job import Source

_TYPES: Mapping[str, str] = {"V100M32": "V100-32GB"}
"""Names of GPU types in traces that the catalogue spells otherwise."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `workload import`."""
    formats = "\n".join(f"  {name:10}{one.title}: {one.files}\n{'':12}({one.origin})" for name, one in FORMATS.items())
    parser = commands.add_parser(
        "import",
        help="turn a published trace into a workload",
        description=f"{__doc__}\n\nformats:\n{formats}\n\nFiles may be compressed (NAME.gz); see docs/workloads.md",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("format", metavar="FORMAT", choices=FORMATS, help="one of the formats above")
    parser.add_argument("files", metavar="FILE", type=Path, nargs="+", help="the trace's files")
    parser.add_argument(
        "--out", metavar="WORKLOAD.csv", type=Path, required=True, help="the workload to write (or .parquet)"
    )
    parser.add_argument(
        "--skip-bad", action="store_true", help="leave bad rows out and count them (default: end at the first)"
    )
    parser.add_argument(
        "--gpus-per-node", metavar="N", type=int, default=8, help="jobs with more span nodes (default 8)"
    )
    parser.add_argument(
        "--step-s",
        metavar="S",
        type=float,
        default=60.0,
        help="length of a step; jobs stop at the end of one (default 60)",
    )
    parser.add_argument("--groups", action="store_true", help="the workload's users are virtual clusters or the like")
    parser.add_argument("--host", action="store_true", help="jobs need the CPUs and memory that the trace states")
    parser.add_argument("--cpu-jobs", action="store_true", help="with jobs that have no GPU")
    parser.add_argument("--finished-only", action="store_true", help="without jobs that failed or were killed")
    parser.add_argument("--gpu-types", action="store_true", help="jobs need the GPU types that the trace names")
    parser.add_argument(
        "--durations", metavar="PATH", type=Path, help="gavel: throughputs; pollux: folder of applications"
    )
    parser.add_argument(
        "--gpu", metavar="TYPE", default="", help="gavel: the GPU type of the table that durations are taken of"
    )
    parser.add_argument("--json", action="store_true", help="print counts as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Imports and prints the counts; 0. Raises InputError."""
    if args.gpus_per_node < 1:
        raise InputError("--gpus-per-node", f"must be at least 1, not {args.gpus_per_node}")
    if not args.step_s > 0:
        raise InputError("--step-s", f"must be above 0, not {args.step_s:g}")
    trace = FORMATS[args.format]
    source = Source(args.files, args.durations, args.gpu, args.skip_bad)
    choices = Choices(
        gpus_per_node=args.gpus_per_node,
        step_s=args.step_s,
        groups=args.groups,
        host=args.host,
        cpu_jobs=args.cpu_jobs,
        finished_only=args.finished_only,
        gpu_name=gpu_name if args.gpu_types else None,
    )
    tally = import_trace(trace, source, choices, args.out)
    if args.json:
        print(json.dumps(_as_json(tally, source), indent=2))
        return 0
    print(f"{args.out}: {tally.written:,} jobs of {trace.title}")
    for reason, count in tally.left_out.most_common():
        print(f"  left out: {count:,} {reason}")
    for change, count in tally.changed.most_common():
        print(f"  changed:  {count:,} {change}")
    if source.bad:
        print(f"  bad rows: {source.bad:,}, the first: {source.first_bad}")
    return 0


def gpu_name(kind: str) -> str | None:
    """The catalogue's name of a trace's GPU type; None if it has none such."""
    try:
        return bundled_catalogue().spec(_TYPES.get(kind, kind), "gpu_type").gpu_type
    except UnknownNameError:
        return None


def _as_json(tally: Tally, source: Source) -> dict[str, object]:
    return {
        "jobs": tally.written,
        "left_out": dict(tally.left_out),
        "changed": dict(tally.changed),
        "bad_rows": source.bad,
        "first_bad_row": source.first_bad or None,
    }
