"""Inputs of Tiresias' simulator (Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI 2019; schema:
SymbioticLab/Tiresias, simulator/60_job.csv). Times are seconds."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler_sims.traces.job import NEVER_RAN, Entry, Source, TraceFormat, TraceJob
from scheduler_sims.traces.rows import Row, table_rows

_NEEDED = ("job_id", "num_gpu", "submit_time", "duration")
_ALIASES = {"submit_time_s": "submit_time", "duration_s": "duration"}


def read(source: Source) -> Iterator[Entry]:
    """The entries of job tables."""
    for path in source.paths:
        yield from source.parsed(table_rows(path, _NEEDED, aliases=_ALIASES), lambda row: timed_job(source, row, 1.0))


def timed_job(source: Source, row: Row, unit_s: float) -> Entry:
    """The job of a row whose times are in units of `unit_s` seconds."""
    duration_s = row.amount("duration") * unit_s
    if duration_s == 0:
        return NEVER_RAN
    return TraceJob(
        job_id=source.job_id(row, row.named("job_id")),
        submit_s=row.amount("submit_time") * unit_s,
        duration_s=duration_s,
        gpus=row.whole("num_gpu"),
        model=row.text("model_name"),
    )


FORMAT = TraceFormat("Tiresias' simulator", "a job table such as 60_job.csv", "github.com/SymbioticLab/Tiresias", read)
