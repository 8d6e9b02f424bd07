"""What the logs of Helios and Acme have in common: a table with one job per row, of Slurm's names.

Durations are end - start. The column `duration` isn't used: in Acme's cluster Kalos it includes the time in the queue.
"""

from __future__ import annotations

from collections.abc import Iterator

from scheduler_sims.traces.job import NEVER_RAN, STILL_RAN, Entry, Source, TraceJob
from scheduler_sims.traces.rows import Row, span_s, table_rows

_GIB_PER_GB = 1e9 / 1024**3
_NEEDED = ("job_id", "user", "node_num", "gpu_num", "cpu_num", "state", "submit_time", "start_time", "end_time")


def read_log(source: Source, group: str) -> Iterator[Entry]:
    """The entries of the logs. `group`: the column of what is above users."""
    for path in source.paths:
        yield from source.parsed(table_rows(path, _NEEDED), lambda row: _job(source, row, group))


def _job(source: Source, row: Row, group: str) -> Entry:
    submit_s, start_s, end_s = (row.moment(name) for name in ("submit_time", "start_time", "end_time"))
    if submit_s is None:
        raise row.error("submit_time", "is empty")
    if start_s is None:
        return NEVER_RAN
    if end_s is None:
        return STILL_RAN
    duration_s = span_s(row, start_s, end_s, "end_time")
    if duration_s == 0:
        return NEVER_RAN
    nodes = row.whole("node_num", 1) or 1
    return TraceJob(
        job_id=source.job_id(row, row.named("job_id")),
        user=row.text("user"),
        group=row.text(group),
        submit_s=submit_s,
        duration_s=duration_s,
        gpus=row.whole("gpu_num", 0),
        nodes=nodes,
        cpus=row.amount("cpu_num", 0),
        memory_gib=row.amount("mem_per_pod_GB", 0) * nodes * _GIB_PER_GB,
        finished=row.text("state") == "COMPLETED",
    )
