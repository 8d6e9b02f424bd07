"""`emugpu predict`: what a traced program takes on GPUs of any type, such as `emugpu predict TRACE --gpu A100 --gpu H100`.

TRACE is a folder that `emugpu trace` wrote. Nothing runs again: recorded calls are replayed with the times that the GPU type
would need. That a program doesn't fit into the memory of a GPU is an answer, no error. docs/prediction.md says what it goes by.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

from emugpu.prediction.conditions import add_options, conditions_of
from emugpu.prediction.figures import Amounts, as_json
from emugpu.prediction.inputs import prices_of
from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.units import NS_PER_S, read_duration_ns
from emulator_runtime.files import write_whole
from emulator_runtime.prediction.prediction import Conditions, Prediction, Predictor, recorded_type
from emulator_runtime.prediction.reading import MANIFEST, read_manifest, read_trace
from emulator_runtime.prediction.timeline import write_timeline


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `predict` to the front door's commands."""
    parser = subparsers.add_parser(
        "predict",
        help="predict step time and memory of a traced program on other GPUs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a folder that `emugpu trace` wrote")
    parser.add_argument(
        "--gpu",
        action="append",
        default=[],
        metavar="TYPE",
        help="a type of `emugpu gpus`; may be repeated (default: the type of the trace)",
    )
    parser.add_argument(
        "--step-time",
        metavar="TIME",
        help="what a step takes on the first --gpu, such as 86ms: estimates are multiplied so that it does, on the other types "
        "by the same factor",
    )
    parser.add_argument("--tokens", type=float, metavar="N", help="that a step of the whole job processes")
    parser.add_argument("--samples", type=float, metavar="N", help="that a step of the whole job processes")
    parser.add_argument(
        "--price",
        action="append",
        default=[],
        metavar="TYPE=N",
        help="of a GPU for an hour, such as A100=3.67, or a file with `A100: 3.67` on a line each; may be repeated",
    )
    add_options(parser)
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="write report.html, prediction.json and timelines for Perfetto"
    )
    parser.add_argument("--format", choices=("table", "json"), default="table", help="what to print (default: table)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the predictions; 0. Raises InputError, UnknownNameError, DeadlockError and OSError."""
    conditions, amounts = conditions_of(args), _amounts(args)
    step_s = None if args.step_time is None else _step_s(args.step_time)
    if args.kernel_table is not None and len(args.gpu) > 1:
        raise InputError("--kernel-table", "has the times of one GPU type; name that one as --gpu, and no other")
    trace = read_trace(args.trace)
    types = args.gpu or [recorded_type(trace)]
    predictor = Predictor(trace)
    anchors = None if step_s is None else predictor.anchor(types[0], step_s, conditions)
    predictions = [predictor.predict(gpu_type, conditions, anchors) for gpu_type in types]
    text = json.dumps([as_json(found, amounts) for found in predictions], indent=2)
    if args.out is not None:
        _write(args, predictions, text, conditions, amounts)
    if args.format == "json":
        print(text)
    else:
        _print(predictions, amounts)
    return 0


def _write(
    args: argparse.Namespace, predictions: list[Prediction], text: str, conditions: Conditions, amounts: Amounts
) -> None:
    from emugpu.prediction.report import Subject, write_report  # here: an image that only runs programs has no plotly

    args.out.mkdir(parents=True, exist_ok=True)
    for found in predictions:
        write_timeline(args.out / f"timeline-{found.gpu_type}.json.gz", found.runs)
    write_whole(args.out / "prediction.json", text + "\n", sync=False)
    command = read_manifest(args.trace).command if (args.trace / MANIFEST).is_file() else ()
    write_report(args.out / "report.html", predictions, Subject(command, conditions, amounts))


def _print(predictions: list[Prediction], amounts: Amounts) -> None:
    from emugpu.prediction.table import notes, tables  # here: an image that only runs programs has no rich
    from emugpu.terminal.console import result_console

    console = result_console()
    for number, table in enumerate(tables(predictions, amounts)):
        if number:
            console.print()
        console.print(table)
    for line in notes(predictions):
        print(line)


def _amounts(args: argparse.Namespace) -> Amounts:
    for option, value in (("--tokens", args.tokens), ("--samples", args.samples)):
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise InputError(option, f"must be a number above 0, not {value}")
    return Amounts(args.tokens, args.samples, prices_of(args.price))


def _step_s(text: str) -> float:
    time_ns = read_duration_ns(text)
    if not time_ns:
        raise InputError("--step-time", f"must be a time above 0 such as 86ms, not {text}")
    return time_ns / NS_PER_S
