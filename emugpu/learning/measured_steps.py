"""Reads what is known of whole training steps: a CSV of traces, GPU types and step times, and the work of each trace's step.

    trace,gpu,step_time,program
    traces/resnet50-64,V100,206ms,resnet50
    traces/resnet50-128,V100,385ms,resnet50

`trace` is a folder of `emugpu trace`, relative to the file. `program` may be left out: then each trace is one of its own.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.units import read_duration_ns
from emulator_runtime.prediction.reading import read_trace
from emulator_runtime.prediction.records import Copy, Launch, Trace, Work
from emulator_runtime.prediction.steps import compute_work, find_steps
from emulator_runtime.profiles.catalogue import gpu_spec

COLUMNS = ("trace", "gpu", "step_time")
PROGRAM = "program"


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy within the device, in place of a piece of work."""

    bytes: int


@dataclass(frozen=True, slots=True)
class StepPart:
    """A piece of work in a step. `launched`: by the host. `waited`: before it the program waited until the device had nothing to
    do."""

    work: Work | Copied
    launched: bool
    waited: bool


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """A step and how long it took on a GPU. Steps of one `program` are so alike that one gives away the other."""

    program: str
    parts: Sequence[StepPart]
    ns: float


def read_measured_steps(path: Path, gpu_type: str) -> list[MeasuredStep]:
    """The rows of a GPU type; those of others are left out. Raises InputError naming the line that is wrong, UnknownNameError for
    a GPU type that doesn't exist, and OSError."""
    found = []
    steps: dict[Path, list[StepPart]] = {}
    for number, row in _rows(path):
        place = f"{path}, line {number}"
        if gpu_spec(row["gpu"], f"{place}, gpu").gpu_type != gpu_type:
            continue
        ns = read_duration_ns(row["step_time"])
        if not ns:
            raise InputError(f"{place}, step_time", f"must be a time above 0 such as 86ms, not {row['step_time']}")
        folder = path.parent / row["trace"]
        if folder not in steps:
            steps[folder] = step_parts(read_trace(folder), str(folder))
        found.append(MeasuredStep(row.get(PROGRAM) or row["trace"], steps[folder], float(ns)))
    if not found:
        raise InputError(str(path), f"has no step times of a {gpu_type}")
    return found


def _rows(path: Path) -> Sequence[tuple[int, Mapping[str, str]]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            columns = reader.fieldnames or ()
            rows = [(reader.line_num, row) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(str(path), f"isn't a CSV file: {error}") from error
    missing = [name for name in COLUMNS if name not in columns]
    unknown = [name for name in columns if name not in (*COLUMNS, PROGRAM)]
    if missing or unknown:
        wanted = f"{','.join(COLUMNS)} and perhaps {PROGRAM}"
        raise InputError(f"{path}, line 1", f"must have the columns {wanted}, not {','.join(columns)}")
    for number, row in rows:
        if None in row or not all(row[name] for name in COLUMNS):
            raise InputError(
                f"{path}, line {number}", f"must have {', '.join(COLUMNS)}, and no more than {len(columns)} values"
            )
    return rows


def step_parts(trace: Trace, place: str) -> list[StepPart]:
    """The last step of a trace. Raises InputError for one of several ranks, whose steps have collectives, or without steps."""
    if len(trace.ranks) != 1:
        raise InputError(
            place, f"has {len(trace.ranks)} ranks; estimates of kernels are learned from programs on one GPU"
        )
    (rank,) = trace.ranks
    work = compute_work(rank)
    steps = find_steps(work.keys)
    if steps is None:
        raise InputError(place, "nothing in it repeats, so that there is no step; trace at least two, six are better")
    parts = []
    first = steps.first + (steps.count - 1) * steps.length
    for number in range(first, first + steps.length):
        record = rank.records[work.records[number]]
        waited = number in work.waited
        if isinstance(record, Launch):
            parts.append(StepPart(record.work, record.dispatched, waited))
        else:
            assert isinstance(record, Copy)
            parts.append(StepPart(Copied(record.bytes), launched=False, waited=waited))
    return parts
