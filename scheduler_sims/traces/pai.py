"""Alibaba PAI, 2020 (Weng et al., "MLaaS in the Wild: Workload Analysis and Scheduling in Large-Scale Heterogeneous GPU
Clusters", NSDI 2022; schema: README.md of alibaba/clusterdata, cluster-trace-gpu-v2020).

Two tables, whose files have no line with columns: pai_job_table.csv (users and submissions) and pai_task_table.csv (what is
asked for). CPUs and GPUs are in percent (50 is half a GPU), of each instance of a task. A job's tasks run together: its duration
is from the first launch to the last end, its GPUs are those of all instances. Both tables are in memory while they are joined:
about 1 KB for each job. Also read: the tables of the trace's own simulator (pai_job_*_100K.csv), which have a job in each row,
GPUs in percent and one instance's demand too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from emulator_runtime.domain.errors import InputError
from scheduler_sims.traces.job import NEVER_RAN, STILL_RAN, Entry, Source, TraceFormat, TraceJob
from scheduler_sims.traces.rows import Row, opened, span_s, table_rows

_JOBS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
_TASKS = (
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
    *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
)
_SIMULATOR = ("job_id", "num_inst", "user", "submit_time", "duration", "num_cpu", "num_gpu")
_GIB_PER_GB = 1e9 / 1024**3


@dataclass(slots=True)
class _Tasks:
    """The tasks of a job together. GPUs and CPUs in percent."""

    row: Row
    start_s: float | None = None
    end_s: float | None = None
    unended: bool = False
    gpu_percent: float = 0.0
    cpu_percent: float = 0.0
    memory_gib: float = 0.0
    gpu_types: dict[str, None] = field(default_factory=dict)
    finished: bool = True


def read(source: Source) -> Iterator[Entry]:
    """The entries of both tables, in the order of the task table, or those of the simulator's tables."""
    tables = {path: _columns_of(path) for path in source.paths}
    for path, columns in tables.items():
        if columns == _SIMULATOR:
            yield from source.parsed(table_rows(path, _SIMULATOR), lambda row: _simulated(source, row))
    of_jobs = [path for path, columns in tables.items() if columns == _JOBS]
    of_tasks = [path for path, columns in tables.items() if columns == _TASKS]
    if bool(of_jobs) != bool(of_tasks):
        raise InputError(str(source.paths[0]), "needs both tables: name pai_job_table.csv and pai_task_table.csv")
    submitted: dict[str, tuple[float, str]] = {}
    for path in of_jobs:
        submitted.update(source.parsed(table_rows(path, _JOBS, header=_header(path, _JOBS)), _submission))
    tasks: dict[str, _Tasks] = {}
    for path in of_tasks:
        for _ in source.parsed(table_rows(path, _TASKS, header=_header(path, _TASKS)), lambda row: _add(tasks, row)):
            pass
    for name, together in tasks.items():
        yield from source.parsed([together.row], lambda row, name=name, job=together: _job(submitted, name, job))  # type: ignore[misc]


def _columns_of(path: Path) -> tuple[str, ...]:
    """Which table it is, by its first line. Raises InputError if it is none."""
    with opened(path) as file:
        cells = file.readline().strip().split(",")
    if set(_SIMULATOR) <= set(cells):
        return _SIMULATOR
    for columns in (_JOBS, _TASKS):
        if len(cells) == len(columns):
            return columns
    raise InputError(
        f"{path}:1",
        f"is no table of this trace: {len(cells)} columns, not {len(_JOBS)} (jobs) or {len(_TASKS)} (tasks)",
    )


def _header(path: Path, columns: tuple[str, ...]) -> tuple[str, ...] | None:
    """The published tables have none; copies with one are read as well."""
    with opened(path) as file:
        return None if file.readline().startswith(columns[0]) else columns


def _submission(row: Row) -> tuple[str, tuple[float, str]]:
    return row.named("job_name"), (row.amount("start_time"), row.text("user"))


def _add(tasks: dict[str, _Tasks], row: Row) -> None:
    instances = row.whole("inst_num", 1)
    gpu, cpu, memory = (row.amount(name, 0) for name in ("plan_gpu", "plan_cpu", "plan_mem"))
    start_s, end_s = (row.amount(name) if row.text(name) else None for name in ("start_time", "end_time"))
    job = tasks.setdefault(row.named("job_name"), _Tasks(row))
    job.gpu_percent += instances * gpu
    job.cpu_percent += instances * cpu
    job.memory_gib += instances * memory * _GIB_PER_GB
    job.finished &= row.text("status") == "Terminated"
    if gpu and row.text("gpu_type"):
        job.gpu_types[row.text("gpu_type")] = None
    if start_s is not None:
        job.start_s = min(start_s, start_s if job.start_s is None else job.start_s)
        job.unended |= not end_s
        job.end_s = max(end_s or 0.0, job.end_s or 0.0)


def _job(submitted: dict[str, tuple[float, str]], name: str, job: _Tasks) -> Entry:
    if name not in submitted:
        raise job.row.error("job_name", f"{name} is not in the job table")
    if job.start_s is None:
        return NEVER_RAN
    if job.unended or job.end_s is None:
        return STILL_RAN
    duration_s = span_s(job.row, job.start_s, job.end_s, "end_time")
    if duration_s == 0:
        return NEVER_RAN
    submit_s, user = submitted[name]
    return TraceJob(
        job_id=name,
        user=user,
        submit_s=submit_s,
        duration_s=duration_s,
        gpus=job.gpu_percent / 100,
        cpus=job.cpu_percent / 100,
        memory_gib=job.memory_gib,
        gpu_types=tuple(job.gpu_types),
        finished=job.finished,
    )


def _simulated(source: Source, row: Row) -> Entry:
    instances, duration_s = row.whole("num_inst", 1), row.amount("duration")
    if duration_s == 0:
        return NEVER_RAN
    return TraceJob(
        job_id=source.job_id(row, row.named("job_id")),
        user=row.text("user"),
        submit_s=row.amount("submit_time"),
        duration_s=duration_s,
        gpus=instances * row.amount("num_gpu", 0) / 100,
        cpus=instances * row.amount("num_cpu", 0) / 100,
        gpu_types=tuple(filter(None, [row.text("gpu_type")])),
    )


FORMAT = TraceFormat(
    "Alibaba PAI, 2020",
    "pai_job_table.csv and pai_task_table.csv, or pai_job_*_100K.csv",
    "github.com/alibaba/clusterdata, cluster-trace-gpu-v2020",
    read,
)
