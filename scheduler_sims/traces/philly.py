"""Philly: deep learning jobs of Microsoft, 2017 (Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training
Workloads", ATC 2019; schema: README.md of msr-fiddle/philly-traces).

A job may have several attempts, one after the other; its duration is the sum of theirs, its GPUs are those of the last one. The
servers of an attempt are where it was placed, not what it asked for, so they aren't imported. Times have no zone (Pacific
time): an attempt over the end of summer time is an hour short. A table with the columns of the extract in
Pollux's artifact (petuum/adaptdl, branch osdi21-artifact, simulator/traces/philly.csv) is read as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from scheduler_sims.traces.job import NEVER_RAN, STILL_RAN, Entry, Source, TraceFormat, TraceJob
from scheduler_sims.traces.rows import Row, json_items, span_s, table_rows

_EXTRACT = ("timestamp", "duration", "num_gpus", "cluster")
_TEXTS = ("jobid", "user", "vc", "status", "submitted_time")


def read(source: Source) -> Iterator[Entry]:
    """The entries of job logs and extracts."""
    for path in source.paths:
        if ".csv" in path.suffixes:
            yield from source.parsed(table_rows(path, _EXTRACT), lambda row: _extracted(source, row))
        else:
            rows = (Row(path, number, {"": item}) for number, item in json_items(path))
            yield from source.parsed(rows, lambda row: _job(source, row))


def _job(source: Source, row: Row) -> Entry:
    item: Any = row.cells[""]
    attempts = item.get("attempts") if isinstance(item, dict) else None
    if not isinstance(attempts, list) or not all(isinstance(attempt, dict) for attempt in attempts):
        raise row.error("attempts", "must be a list of attempts")
    texts = _texts(row, item, _TEXTS)
    submit_s = texts.moment("submitted_time")
    if submit_s is None:
        raise row.error("submitted_time", "is missing")
    duration_s, gpus, unended = 0.0, 0, False
    for number, attempt in enumerate(attempts, start=1):
        times = _texts(row, attempt, ("start_time", "end_time"))
        start_s, end_s = times.moment("start_time"), times.moment("end_time")
        unended = end_s is None
        if start_s is None or end_s is None:
            continue  # "could be the result of a logging error", says the trace's README
        duration_s += span_s(row, start_s, end_s, f"attempts[{number}].end_time")
        gpus = _gpus(row, attempt.get("detail"), number) or gpus
    if duration_s == 0:
        return STILL_RAN if unended else NEVER_RAN
    return TraceJob(
        job_id=source.job_id(row, texts.named("jobid")),
        user=texts.text("user"),
        group=texts.text("vc"),
        submit_s=submit_s,
        duration_s=duration_s,
        gpus=gpus,
        finished=texts.text("status") == "Pass",
    )


def _texts(row: Row, item: Mapping[str, Any], names: tuple[str, ...]) -> Row:
    """Members of a JSON object as the cells of a row."""
    return Row(row.path, row.number, {name: str(item.get(name) or "") for name in names})


def _gpus(row: Row, detail: Any, attempt: int) -> int:
    """The GPUs of an attempt. Raises InputError."""
    try:
        return sum(len(server["gpus"]) for server in detail or ())
    except (TypeError, KeyError) as error:
        raise row.error(f"attempts[{attempt}].detail", "must be a list of servers with gpus") from error


def _extracted(source: Source, row: Row) -> Entry:
    submit_s = row.moment("timestamp")
    if submit_s is None:
        raise row.error("timestamp", "is empty")
    duration_s, gpus = row.amount("duration"), row.whole("num_gpus")
    return (
        TraceJob(source.job_id(row), submit_s, duration_s, gpus, group=row.text("cluster")) if duration_s else NEVER_RAN
    )


FORMAT = TraceFormat(
    "Microsoft Philly, 2017",
    "cluster_job_log (JSON), or Pollux's extract philly.csv",
    "github.com/msr-fiddle/philly-traces",
    read,
)
