"""Inputs of Gavel's simulator (Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
OSDI 2020; schema: stanford-futuredata/gavel, function parse_trace of scheduler/utils): lines of fields separated by tabs, without
a line of columns.

A job's length is a number of steps; the speed comes from a table of throughputs (simulation_throughputs.json: steps per second by
GPU type, job type and number of GPUs), of one GPU type. Arrival times are seconds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from emulator_runtime.domain.errors import InputError, UnknownNameError
from scheduler_sims.traces.job import NEVER_RAN, Entry, Source, TraceFormat, TraceJob
from scheduler_sims.traces.rows import Row, opened, table_rows

_COLUMNS = (
    *("job_type", "command", "num_steps_arg", "needs_data_dir", "total_steps"),
    *("scale_factor", "priority_weight", "SLO", "arrival_time"),
)
_OLD_COLUMNS = (*_COLUMNS[:2], "working_directory", *_COLUMNS[2:])
"""Files of some versions have one field more."""

Throughputs = Mapping[str, Mapping[str, float]]
"""Steps per second by "('JOB TYPE', GPUS)" and GPU type."""


def read(source: Source) -> Iterator[Entry]:
    """The entries of traces. Raises InputError without a table of throughputs."""
    if source.durations is None:
        raise InputError(
            "--durations", "is missing: this format has steps, not seconds: name Gavel's simulation_throughputs.json"
        )
    speeds = _throughputs(source.durations, source.gpu)
    for path in source.paths:
        rows = table_rows(path, _COLUMNS, header=_columns_of(path), delimiter="\t")
        yield from source.parsed(rows, lambda row: _job(source, row, speeds))


def _columns_of(path: Path) -> tuple[str, ...]:
    with opened(path) as file:
        return _OLD_COLUMNS if file.readline().count("\t") + 1 == len(_OLD_COLUMNS) else _COLUMNS


def _job(source: Source, row: Row, speeds: Mapping[str, float]) -> Entry:
    kind, gpus, steps = row.named("job_type"), row.whole("scale_factor", least=1), row.whole("total_steps")
    speed = speeds.get(f"('{kind}', {gpus})")
    if speed is None:
        raise row.error("job_type", f"{kind} on {gpus} GPUs is not in {source.durations}")
    if speed == 0:
        raise row.error("job_type", f"{kind} doesn't run on {gpus} GPUs of type {source.gpu}: its throughput is 0")
    return (
        TraceJob(
            job_id=source.job_id(row),
            submit_s=row.amount("arrival_time"),
            duration_s=steps / speed,
            gpus=gpus,
            model=kind,
            weight=row.amount("priority_weight", 1.0, least=1e-9),
        )
        if steps
        else NEVER_RAN
    )


def _throughputs(path: Path, gpu: str) -> dict[str, float]:
    """Steps per second of jobs alone on a GPU type, by "('JOB TYPE', GPUS)". Raises InputError."""
    try:
        with opened(path) as file:
            table: Any = json.load(file)
        if not gpu or gpu not in table:
            raise UnknownNameError("--gpu", "GPU type", gpu, table)
        speeds = {kind: float(others["null"]) for kind, others in table[gpu].items() if "null" in others}
    except (ValueError, TypeError, AttributeError, OSError) as error:
        raise InputError(str(path), f"is no table of throughputs by GPU type and job type: {error}") from error
    if bad := next((kind for kind, speed in speeds.items() if not 0 <= speed < math.inf), None):
        raise InputError(f"{path}: {gpu}: {bad}", "must be a number of steps per second of at least 0")
    return speeds


FORMAT = TraceFormat(
    "Gavel's simulator",
    "a trace; --durations simulation_throughputs.json --gpu v100",
    "github.com/stanford-futuredata/gavel",
    read,
)
