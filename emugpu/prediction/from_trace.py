"""`emugpu profile from-trace`: make a profile of a traced program, so that workloads can name it like a bundled model.

Trace the program on one GPU, at each batch size that jobs will use, then name the traces with their batch sizes:

    emugpu trace --out traces/8 -- python train.py --batch 8
    emugpu trace --out traces/32 -- python train.py --batch 32
    emugpu profile from-trace my-model 8=traces/8 32=traces/32 --gpu A100 --gpu V100 --out mine.json
    emugpu compare workload.csv --cluster cluster.yaml --profiles mine.json --policy srtf
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from emulator_runtime.domain.errors import InputError
from emulator_runtime.files import write_whole
from emulator_runtime.prediction.prediction import STANDARD_CONDITIONS, recorded_type
from emulator_runtime.prediction.profiles import profile_document, traced_step
from emulator_runtime.prediction.reading import read_trace
from emulator_runtime.profiles.table import ProfileTable


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `from-trace` to the commands of `emugpu profile`."""
    parser = commands.add_parser(
        "from-trace",
        help="make a profile of a traced program",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", metavar="MODEL", help="the name that workloads will use")
    parser.add_argument(
        "traces", nargs="+", metavar="BATCH=TRACE", help="samples in a step, and a folder that `emugpu trace` wrote"
    )
    parser.add_argument(
        "--gpu",
        action="append",
        default=[],
        metavar="TYPE",
        help="a type of `emugpu gpus`; may be repeated (default: the type of the traces)",
    )
    parser.add_argument(
        "--steps",
        type=int,
        metavar="N",
        help="training steps that each traced run did, for the time that a run takes beside its steps (default: by what repeats)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FILE",
        help="JSON file with profiles; one that is there keeps its other models",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Writes the profile and prints its figures; 0. Raises InputError, UnknownNameError, DeadlockError and OSError."""
    if args.steps is not None and args.steps < 1:
        raise InputError("--steps", f"must be at least 1, not {args.steps}")
    document = _document(args.out)
    folders = _folders(args.traces)
    traces = {batch: read_trace(folder) for batch, folder in folders.items()}
    types = args.gpu or sorted({recorded_type(trace) for trace in traces.values()})
    steps = [
        traced_step(trace, batch, types, STANDARD_CONDITIONS, str(folders[batch]), args.steps)
        for batch, trace in traces.items()
    ]
    models = document.setdefault("models", {})
    assert isinstance(models, dict)  # `_document` has read it
    models[args.model] = profile_document(steps)
    write_whole(args.out, json.dumps(document, indent=2) + "\n", sync=False)
    print(f"{args.model} is in {args.out}; see `emugpu profile show {args.model} --profiles {args.out}`")
    return 0


def _document(path: Path) -> dict[str, object]:
    """What the file has; an empty document if there is none. Raises InputError if it isn't a file of profiles."""
    if not path.exists():
        return {}
    ProfileTable.bundled().with_file(path)
    document = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


def _folders(words: list[str]) -> dict[int, Path]:
    """By rising batch size."""
    found: dict[int, Path] = {}
    for word in words:
        batch, separator, folder = word.partition("=")
        if not (separator and folder and batch.isascii() and batch.isdigit() and int(batch) > 0):
            raise InputError("BATCH=TRACE", f"must be a batch size and a folder such as 32=out/trace, not {word}")
        if int(batch) in found:
            raise InputError("BATCH=TRACE", f"batch size {batch} is there twice: {found[int(batch)]} and {folder}")
        found[int(batch)] = Path(folder)
    return dict(sorted(found.items()))
