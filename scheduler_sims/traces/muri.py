"""Inputs of Muri's simulator (Zhao et al., "Multi-Resource Interleaving for Deep Learning Training", SIGCOMM 2022; schema:
Rivendile/Muri, simulator/trace-data). The columns are those of Tiresias, but all times are milliseconds, those of an iteration's
stages included, which aren't imported."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler_sims.traces.job import Entry, Source, TraceFormat
from scheduler_sims.traces.rows import table_rows
from scheduler_sims.traces.tiresias import timed_job

_NEEDED = ("job_id", "num_gpu", "submit_time", "duration", "iteration_time")
_ALIASES = {name + "_ms": name for name in ("submit_time", "duration", "iteration_time")}


def read(source: Source) -> Iterator[Entry]:
    """The entries of job tables."""
    for path in source.paths:
        yield from source.parsed(table_rows(path, _NEEDED, aliases=_ALIASES), lambda row: timed_job(source, row, 1e-3))


FORMAT = TraceFormat("Muri's simulator", "a job table such as trace1.csv", "github.com/Rivendile/Muri", read)
