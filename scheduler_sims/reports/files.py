"""Writes jobs.csv and summary.json. The same runs give the same bytes, and the files are written atomically."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from emulator_runtime.domain.errors import InputError
from emulator_runtime.files import write_whole
from scheduler_sims.record import JobRecord, RunRecord, ServiceLevel
from scheduler_sims.reports.comparison import Comparison, Errors, Observed, PolicyComparison
from scheduler_sims.reports.ranking import standings

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JobRow:
    """One line of jobs.csv: a job of one run. Times are emulated seconds; `start_s` is None for a job that never ran."""

    policy: str
    cluster: str
    repeat: int
    job_id: str
    user: str
    status: str
    submit_s: float
    start_s: float | None
    finish_s: float
    jct_s: float
    queueing_delay_s: float
    preemptions: int
    devices: tuple[str, ...]
    reason: str


JOB_COLUMNS = tuple(field.name for field in fields(JobRow))


def write_jobs_csv(path: Path, runs: Iterable[RunRecord]) -> None:
    """One row for each policy, cluster, repeat and job; seconds have six decimals. Raises InputError if it can't be written."""
    write_table(path, JOB_COLUMNS, (_csv_cells(run, job) for run in runs for job in run.jobs))


def read_jobs_csv(path: Path) -> list[JobRow]:
    """The rows of a file written by write_jobs_csv. Raises InputError naming file and line."""
    return read_table(path, "jobs.csv", JOB_COLUMNS, _job_row)


def summary_dict(comparison: Comparison, meta: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """All figures and errors as plain JSON values. Errors are fractions; undefined values are None."""
    policies = {policy.policy: _policy_dict(policy) for policy in comparison.policies}
    ranking = [asdict(standing) for standing in standings(comparison)]
    summary: dict[str, Any] = _plain({"policies": policies, "ranking": ranking, "meta": dict(meta or {})})
    return summary


def write_summary(path: Path, comparison: Comparison, meta: Mapping[str, Any] | None = None) -> None:
    """Write summary.json, see summary_dict. Raises InputError if it can't be written."""
    write_atomically(path, json.dumps(summary_dict(comparison, meta), indent=2, allow_nan=False) + "\n")


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file with these columns. Raises InputError if it can't be written."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    write_atomically(path, text.getvalue())


def read_table(path: Path, what: str, columns: Sequence[str], row: Callable[[str, Mapping[str, str]], T]) -> list[T]:
    """Read a CSV file; `row` converts each line from its place and cells. `what` is the expected file, such as jobs.csv.

    Raises InputError if the file isn't that or can't be read.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            if tuple(reader.fieldnames or ()) != tuple(columns):
                raise InputError(f"{path}:1", f"is not a {what}; its first line must be {','.join(columns)}")
            return [row(f"{path}:{reader.line_num}", cells) for cells in reader]
    except OSError as error:
        raise InputError(str(path), f"can't be read: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(str(path), f"can't be read: {error}") from error


def seconds(cell: str) -> float:
    """The time in a cell of a table. Raises ValueError if it isn't a finite number."""
    if not math.isfinite(time_s := float(cell)):
        raise ValueError(f"{cell} is not a time")
    return time_s


def write_atomically(path: Path, text: str) -> None:
    """Write another file, flush it to the disk and rename it: readers see the old content or the new one."""
    try:
        write_whole(path, text, sync=True, unfinished=path.with_name(f".{path.name}.{os.getpid()}.tmp"))
    except OSError as error:
        raise InputError(str(path), f"can't be written: {error.strerror}; choose another output folder") from error


def _csv_cells(run: RunRecord, job: JobRecord) -> tuple[str | int, ...]:
    return (
        run.policy,
        run.cluster,
        run.repeat,
        job.job_id,
        job.user,
        job.status,
        _time(job.submit_s),
        "" if job.start_s is None else _time(job.start_s),
        _time(job.finish_s),
        _time(job.jct_s),
        _time(job.queueing_delay_s),
        job.preemptions,
        " ".join(job.devices),
        job.reason,
    )


def _time(seconds: float) -> str:
    return f"{seconds + 0.0:.6f}"  # + 0.0 turns -0.0 into 0.0


def _job_row(place: str, cells: Mapping[str, str]) -> JobRow:
    try:
        return JobRow(
            policy=cells["policy"],
            cluster=cells["cluster"],
            repeat=int(cells["repeat"]),
            job_id=cells["job_id"],
            user=cells["user"],
            status=cells["status"],
            submit_s=seconds(cells["submit_s"]),
            start_s=seconds(cells["start_s"]) if cells["start_s"] else None,
            finish_s=seconds(cells["finish_s"]),
            jct_s=seconds(cells["jct_s"]),
            queueing_delay_s=seconds(cells["queueing_delay_s"]),
            preemptions=int(cells["preemptions"]),
            devices=tuple(cells["devices"].split()),
            reason=cells["reason"],
        )
    except (TypeError, ValueError, AttributeError) as error:  # in a short row, the last cells are None
        raise InputError(place, f"is not a row of a jobs.csv ({error}); write the file again") from error


def _policy_dict(policy: PolicyComparison) -> dict[str, Any]:
    return {
        "predicted": policy.predicted.as_dict() if policy.predicted else None,
        "observed": _observed_dict(policy.observed) if policy.observed else None,
        "error": _error_dict(policy.error) if policy.error else None,
        "unmatched_jobs": list(policy.unmatched),
        "failures": [asdict(failure) for failure in policy.failures],
        "notes": list(policy.notes),
        **({"services": [_service_dict(*each) for each in policy.services]} if policy.services else {}),
    }


def _service_dict(cluster: str, repeat: int, level: ServiceLevel) -> dict[str, Any]:
    return {"cluster": cluster, "repeat": repeat, **asdict(level)}


def _observed_dict(observed: Observed) -> dict[str, Any]:
    return {
        "cluster": observed.cluster,
        **observed.figures.as_dict(),
        "repeats": [one.as_dict() for one in observed.repeats],
        "spread": {name: asdict(spread) for name, spread in observed.spread.items()},
        "lag": {kind: asdict(lag) for kind, lag in observed.lag.items()},
    }


def _error_dict(error: Errors) -> dict[str, Any]:
    return {
        **error.by_figure,
        "per_job": asdict(error.per_job),
        "jct_quantiles": [asdict(quantile) for quantile in error.jct_quantiles],
        "jct_quantiles_max_abs": error.jct_quantiles_max_abs,
    }


def _plain(value: Any) -> Any:
    """The value in JSON types; NaN and infinity, which JSON doesn't have, become None."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)
