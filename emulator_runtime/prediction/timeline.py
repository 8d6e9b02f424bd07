"""What ranks did, as a file for Perfetto or chrome://tracing ("Trace Event Format", complete events), gzipped."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from emulator_runtime.files import replacing
from emulator_runtime.prediction.estimators import demangled
from emulator_runtime.prediction.records import Collective, Copy, HostFunction, HostWaits, Launch, Record
from emulator_runtime.prediction.simulation import RankRun

_HOST_ROWS = 1_000_000
"""Rows of host threads come after those of streams."""


def write_timeline(path: Path, runs: Iterable[RankRun]) -> None:
    """One process for each rank, one row for each stream and host thread. Raises OSError."""
    with replacing(path) as unfinished, gzip.open(unfinished, "wt", encoding="utf-8", compresslevel=3) as file:
        file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        for number, event in enumerate(_events(runs)):
            file.write((",\n" if number else "") + json.dumps(event))
        file.write("\n]}\n")


def _events(runs: Iterable[RankRun]) -> Iterator[dict[str, object]]:
    for run in runs:
        rows: dict[tuple[object, ...], int] = {}
        yield _named("process_name", run.trace.rank, 0, f"rank {run.trace.rank}")
        for spans in (run.device_work, run.collectives, run.host_waits):
            for index, start_ns, end_ns in zip(spans.records, spans.starts_ns, spans.ends_ns, strict=True):
                record = run.trace.records[index]
                key, title = _row_of(record, host=spans is run.host_waits)
                row = rows.get(key)
                if row is None:
                    row = rows[key] = len(rows) + (_HOST_ROWS if spans is run.host_waits else 0)
                    yield _named("thread_name", run.trace.rank, row, title)
                yield {
                    "ph": "X",
                    "name": "wait" if spans is run.host_waits else _name_of(record),
                    "pid": run.trace.rank,
                    "tid": row,
                    "ts": start_ns / 1000,
                    "dur": (end_ns - start_ns) / 1000,
                    "args": {"record": index, **_details(record)},
                }


def _named(kind: str, process: int, row: int, name: str) -> dict[str, object]:
    return {"ph": "M", "name": kind, "pid": process, "tid": row, "args": {"name": name}}


def _row_of(record: Record, *, host: bool) -> tuple[tuple[object, ...], str]:
    if host or not isinstance(record, Launch | Copy | HostFunction | Collective):
        return ("host", record.thread), f"host thread {record.thread}"
    return (record.device, record.stream), f"device {record.device}, stream {record.stream}"


def _name_of(record: Record) -> str:
    if isinstance(record, Launch):
        return _title(record.work.name)
    if isinstance(record, Copy):
        return f"Memcpy {_end(record.from_device)}to{_end(record.to_device)}"
    return record.operation if isinstance(record, Collective) else "host function"


def _end(device: int) -> str:
    return "H" if device < 0 else "D"


def _details(record: Record) -> dict[str, object]:
    if isinstance(record, Launch):
        work = record.work
        return {"flops": work.flops, "bytes": work.bytes, "grid": work.grid, "block": work.block}
    if isinstance(record, Copy):
        return {"bytes": record.bytes}
    if isinstance(record, Collective):
        return {"bytes": record.bytes, "communicator": record.communicator, "number": record.number}
    return {"moment": record.moment} if isinstance(record, HostWaits) else {}


_title = lru_cache(maxsize=None)(demangled)
