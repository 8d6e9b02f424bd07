"""Turns the entries of a trace into the rows of a workload, in the order of submission.

Rows are read and written one by one. Only their order may need more: they are sorted in pieces of CHUNK jobs, which wait in
temporary files, so that memory is bounded for a trace of any length.
"""

from __future__ import annotations

import heapq
import io
import pickle
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain, islice
from math import ceil
from pathlib import Path
from typing import IO

from emulator_runtime.domain.errors import InputError
from scheduler_sims.inputs.table_file import write_csv, write_table
from scheduler_sims.inputs.workload import column_type
from scheduler_sims.traces.job import Entry, LeftOut, Source, TraceFormat, TraceJob

CHUNK = 100_000
_ROUNDING = 1e-9
_COLUMNS = ("job_id", "user", "submit_s", "num_gpus", "nodes", "gpu_duration_s", "steps", "model", "weight")
_HOST_COLUMNS = ("cpus", "memory_gib")
_TYPE_COLUMN = "gpu_type"
_CPU_COLUMNS = ("cpu_cpus", "cpu_duration_s")


@dataclass(frozen=True, slots=True)
class Choices:
    """What becomes of a trace's jobs.

    `gpus_per_node`: jobs with more GPUs are split over nodes. `step_s`: the length of a step, at whose end a job can be stopped.
    `groups`: the workload's users are the trace's groups. `host`: with CPUs and memory. `cpu_jobs`: with jobs that have no GPU.
    `finished_only`: without those that failed or were killed. `gpu_name`: a GPU type of the trace to one of the cluster, None if
    there is none such; without it, jobs run on any type.
    """

    gpus_per_node: int = 8
    step_s: float = 60.0
    groups: bool = False
    host: bool = False
    cpu_jobs: bool = False
    finished_only: bool = False
    gpu_name: Callable[[str], str | None] | None = None


@dataclass(slots=True)
class Tally:
    """What became of a trace's entries. `left_out`: by reason. `changed`: what a workload can't have as it was, by change."""

    written: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)


def import_trace(trace: TraceFormat, source: Source, choices: Choices, out: Path) -> Tally:
    """Writes the workload to `out`. Raises InputError for a bad row (unless these are skipped), and if no job is left."""
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="emugpu-import-") as folder, ExitStack() as files:
        jobs = ordered(_kept(trace.read(source), choices, tally), Path(folder), files)
        first = next(jobs, None)
        if first is None:
            reasons = ", ".join(f"{count} {reason}" for reason, count in tally.left_out.items()) or "it has no rows"
            raise InputError(str(source.paths[0]), f"no job can be imported: {reasons}")
        title = f"Imported from: {trace.title} ({trace.origin})"
        write_workload(out, title, chain([first], jobs), choices, tally)
    return tally


def write_workload(
    out: Path, title: str, jobs: Iterable[TraceJob], choices: Choices, tally: Tally | None = None
) -> None:
    """Writes a workload file with these jobs, which are in the order of submission. Raises InputError if it can't be written."""
    columns = _columns(choices)
    rows = _rows(columns, jobs, choices, Tally() if tally is None else tally)
    write_table(out, {name: column_type(name) for name in columns}, rows, _comment(title))


def _kept(entries: Iterable[Entry], choices: Choices, tally: Tally) -> Iterator[TraceJob]:
    for entry in entries:
        reason = entry.reason if isinstance(entry, LeftOut) else _refusal(entry, choices)
        if reason:
            tally.left_out[reason] += 1
        else:
            assert isinstance(entry, TraceJob)
            yield entry


def _refusal(job: TraceJob, choices: Choices) -> str:
    if choices.finished_only and not job.finished:
        return "failed or were killed"
    if job.gpus <= 0 and not choices.cpu_jobs:
        return "have no GPU"
    return ""


def ordered(jobs: Iterator[TraceJob], folder: Path, files: ExitStack, chunk: int = CHUNK) -> Iterator[TraceJob]:
    """The jobs by submission; of two at the same time the one that came first. Sorted pieces of them wait in `folder`."""
    pieces: list[Iterator[TraceJob]] = []
    while piece := sorted(islice(jobs, chunk), key=_submission):
        if len(piece) < chunk:
            pieces.append(iter(piece))
            break
        path = folder / f"{len(pieces)}.pickle"
        with path.open("wb") as file:
            for job in piece:
                pickle.dump(job, file)
        pieces.append(_unpickled(files.enter_context(path.open("rb"))))
    return heapq.merge(*pieces, key=_submission)


def _submission(job: TraceJob) -> float:
    return job.submit_s


def _unpickled(file: IO[bytes]) -> Iterator[TraceJob]:
    while True:
        try:
            yield pickle.load(file)
        except EOFError:
            return


def workload_text(title: str, jobs: Iterable[TraceJob], choices: Choices) -> str:
    """The text that write_workload writes into a CSV file."""
    text, columns = io.StringIO(), _columns(choices)
    write_csv(text, columns, _rows(columns, jobs, choices, Tally()), _comment(title))
    return text.getvalue()


def _comment(title: str) -> str:
    return f"# {title}. Times in seconds since the first submission.\n"


def _columns(choices: Choices) -> Sequence[str]:
    return (
        *_COLUMNS,
        *(_HOST_COLUMNS if choices.host else ()),
        *([_TYPE_COLUMN] if choices.gpu_name else ()),
        *(_CPU_COLUMNS if choices.cpu_jobs else ()),
    )


def _rows(
    columns: Sequence[str], jobs: Iterable[TraceJob], choices: Choices, tally: Tally
) -> Iterator[Sequence[object]]:
    origin_s: float | None = None
    for job in jobs:
        origin_s = job.submit_s if origin_s is None else origin_s
        row = row_of(job, origin_s, choices, tally)
        yield [row.get(name, "") for name in columns]


def row_of(job: TraceJob, origin_s: float, choices: Choices, tally: Tally) -> dict[str, object]:
    """The job's row of the workload; what had to be changed is counted."""
    tally.written += 1
    row: dict[str, object] = {
        "job_id": job.job_id.lstrip("#"),
        "user": (job.group if choices.groups else job.user) or "user",
        "submit_s": _number(job.submit_s - origin_s),
        "steps": max(1, ceil(job.duration_s / choices.step_s)),
        "model": job.model,
        "weight": "" if job.weight == 1 else _number(job.weight),
    }
    if job.gpus <= 0:
        cpu = {"cpu_cpus": _number(job.cpus or 1), "cpu_duration_s": _number(job.duration_s)}
        return row | cpu | ({"memory_gib": _number(job.memory_gib)} if choices.host else {})
    gpus = ceil(job.gpus - _ROUNDING)
    if gpus - job.gpus > _ROUNDING:
        tally.changed["ask for a part of a GPU: rounded up"] += 1
    nodes = _nodes(gpus, job.nodes, choices.gpus_per_node)
    if job.nodes is not None and nodes != job.nodes:
        tally.changed[f"can't be split over their nodes with {choices.gpus_per_node} GPUs each: over others"] += 1
    row |= {"num_gpus": gpus, "nodes": nodes if nodes > 1 else "", "gpu_duration_s": _number(job.duration_s)}
    if choices.host:
        row |= {"cpus": _number(job.cpus or 1), "memory_gib": _number(job.memory_gib)}
    if choices.gpu_name and job.gpu_types:
        names = [name for kind in job.gpu_types if (name := choices.gpu_name(kind)) is not None]
        row[_TYPE_COLUMN] = "|".join(dict.fromkeys(names))
        if not names:
            tally.changed["name a GPU type that isn't known here: run on any"] += 1
    return row


def _nodes(gpus: int, asked: int | None, gpus_per_node: int) -> int:
    """As many nodes as asked for, if they are alike and large enough, else as few as possible."""
    if asked is not None and gpus % asked == 0 and gpus // asked <= gpus_per_node:
        return asked
    return next(nodes for nodes in range(ceil(gpus / gpus_per_node), gpus + 1) if gpus % nodes == 0)


def _number(value: float) -> str:
    """Up to microseconds, without trailing zeros."""
    return f"{value:.6f}".rstrip("0").rstrip(".")
