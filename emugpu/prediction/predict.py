"""`emugpu predict`: what a traced program takes on GPUs of any type, such as `emugpu predict TRACE --gpu A100 --gpu H100`.

TRACE is a folder that `emugpu trace` wrote. Nothing runs again: recorded calls are replayed with the times that the GPU type
would need. That a program doesn't fit into the memory of a GPU is an answer, no error. docs/prediction.md says what it goes by.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.units import NS_PER_S, gib, read_duration_ns
from emulator_runtime.files import write_whole
from emulator_runtime.prediction.estimators import COMPUTE, LAUNCH, MEMORY
from emulator_runtime.prediction.learned.estimator_file import PUBLISHED
from emulator_runtime.prediction.links import NETWORK_GBPS
from emulator_runtime.prediction.prediction import (
    COMMUNICATION,
    COPIES,
    HOST,
    PEERS,
    Conditions,
    Prediction,
    Predictor,
    RankPrediction,
    recorded_type,
)
from emulator_runtime.prediction.reading import read_trace
from emulator_runtime.prediction.timeline import write_timeline

_BOUNDS = {
    COMPUTE: "compute",
    MEMORY: "memory",
    LAUNCH: "small kernels",
    COMMUNICATION: "communication",
    PEERS: "slower ranks",
    COPIES: "copies",
    HOST: "host",
}


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
    parser.add_argument(
        "--network-gbps", type=float, default=NETWORK_GBPS, metavar="N", help="network of a node (default: 100)"
    )
    parser.add_argument(
        "--kernel-table",
        type=Path,
        metavar="FILE",
        help="measured times of kernels (`emugpu cuda kernels`), for one --gpu",
    )
    parser.add_argument(
        "--estimator",
        type=Path,
        metavar="FILE",
        help="estimates learned from a real GPU (`emugpu profile import-trace`); `published`: from published times of "
        "training steps on A100, V100, P100, RTX 6000, M40 and K80",
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write prediction.json and timelines for Perfetto")
    parser.add_argument("--format", choices=("table", "json"), default="table", help="what to print (default: table)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the predictions; 0. Raises InputError, UnknownNameError, DeadlockError and OSError."""
    conditions = Conditions(_network_gbps(args.network_gbps), args.kernel_table, _estimator(args.estimator))
    step_s = None if args.step_time is None else _step_s(args.step_time)
    if args.kernel_table is not None and len(args.gpu) > 1:
        raise InputError("--kernel-table", "has the times of one GPU type; name that one as --gpu, and no other")
    trace = read_trace(args.trace)
    types = args.gpu or [recorded_type(trace)]
    predictor = Predictor(trace)
    anchors = None if step_s is None else predictor.anchor(types[0], step_s, conditions)
    predictions = []
    for gpu_type in types:
        found = predictor.predict(gpu_type, conditions, anchors)
        predictions.append(found)
        if args.out is not None:
            args.out.mkdir(parents=True, exist_ok=True)
            write_timeline(args.out / f"timeline-{found.gpu_type}.json.gz", found.runs)
    text = json.dumps([_as_json(found) for found in predictions], indent=2)
    if args.out is not None:
        write_whole(args.out / "prediction.json", text + "\n", sync=False)
    if args.format == "json":
        print(text)
    else:
        _print(predictions)
    return 0


def _estimator(path: Path | None) -> Path | None:
    return PUBLISHED if path == Path("published") else path


def _network_gbps(value: float) -> float:
    if not (value > 0 and math.isfinite(value)):
        raise InputError("--network-gbps", f"must be a number above 0, not {value}")
    return value


def _step_s(text: str) -> float:
    time_ns = read_duration_ns(text)
    if not time_ns:
        raise InputError("--step-time", f"must be a time above 0 such as 86ms, not {text}")
    return time_ns / NS_PER_S


def _as_json(found: Prediction) -> dict[str, object]:
    return {
        "gpu_type": found.gpu_type,
        "step_s": found.step_s,
        "total_s": found.total_s,
        "mfu": found.mfu,
        "bound": _BOUNDS[found.bound],
        "step_seconds": {_BOUNDS[part]: seconds for part, seconds in found.seconds.items()},
        "memory_bytes": found.memory_bytes,
        "device_memory_bytes": found.device_memory_bytes,
        "out_of_memory_ranks": list(found.out_of_memory),
        "ranks": [_rank_as_json(rank) for rank in found.ranks],
    }


def _rank_as_json(rank: RankPrediction) -> dict[str, object]:
    return {
        "rank": rank.rank,
        "steps": rank.steps,
        "step_s": rank.step_s,
        "total_s": rank.total_s,
        "mfu": rank.mfu,
        "factor": rank.factor,
        "step_seconds": {_BOUNDS[part]: seconds for part, seconds in rank.seconds.items()},
        "memory_bytes": {str(device): peak for device, peak in rank.memory_bytes.items()},
        "estimated_seconds_by_source": dict(rank.source_s),
        "estimate_errors_by_source": dict(rank.source_errors),
    }


def _print(predictions: Sequence[Prediction]) -> None:
    from rich import box  # here: an image that only runs programs has no rich
    from rich.table import Table

    from emugpu.terminal.console import result_console

    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
        caption="Step: mean after the first two. MFU: operations at the data sheet's rate, as a share of the step. Exposed: "
        "collectives beside which nothing is computed. Memory: of the rank that needs most. Bound: what takes most of a step. "
        "Estimates: where they come from, by time, and their median error where it is known.",
        caption_justify="left",
    )
    table.add_column("GPU type", no_wrap=True)
    for heading in ("Step", "MFU", "Exposed", "Memory", "Bound", "Estimates"):
        table.add_column(heading, justify="left" if heading in ("Bound", "Estimates") else "right")
    for found in predictions:
        table.add_row(found.gpu_type, *_cells(found))
    result_console().print(table)
    if any(found.step_s is None for found in predictions):
        print("No step was found, since no sequence of work comes twice in a row: times are of the whole trace.")
    for found in predictions:
        if found.out_of_memory:
            ranks = ", ".join(map(str, found.out_of_memory[:8])) + (" ..." if len(found.out_of_memory) > 8 else "")
            needs = f"{gib(found.memory_bytes)} of {gib(found.device_memory_bytes)}"
            print(f"{found.gpu_type}: out of memory on rank {ranks} ({needs}); the times are those of a GPU with more.")


def _cells(found: Prediction) -> list[str]:
    step_s = found.total_s if found.step_s is None else found.step_s
    exposed_s = found.seconds.get(COMMUNICATION, 0.0)
    memory = (
        "out of memory" if found.out_of_memory else f"{gib(found.memory_bytes)} of {gib(found.device_memory_bytes)}"
    )
    return [
        f"{step_s * 1000:.2f} ms",
        "-" if found.mfu is None else f"{found.mfu:.1%}",
        f"{exposed_s * 1000:.2f} ms",
        memory,
        f"{_BOUNDS[found.bound]} {found.seconds.get(found.bound, 0.0) / step_s:.0%}" if step_s else "-",
        ", ".join(
            f"{source} {share:.0%}" + ("" if error is None else f" (±{error:.1%})")
            for source, (share, error) in sorted(found.sources.items(), key=lambda item: -item[1][0])
        ),
    ]
