"""Alibaba openb, 2023 (Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
Descent", ATC 2023; schema: README.md of alibaba/clusterdata, cluster-trace-gpu-v2023).

Pods: CPUs in thousandths, memory in MiB, `gpu_milli` thousandths of each of `num_gpu` GPUs (below 1000 only for one GPU), times
in seconds. A pod's duration is from its scheduling to its deletion.
"""

from __future__ import annotations

from collections.abc import Iterator

from scheduler_sims.traces.job import NEVER_RAN, STILL_RAN, Entry, Source, TraceFormat, TraceJob
from scheduler_sims.traces.rows import Row, span_s, table_rows

_NEEDED = (
    "name",
    "cpu_milli",
    "memory_mib",
    "num_gpu",
    "gpu_milli",
    "creation_time",
    "deletion_time",
    "scheduled_time",
)


def read(source: Source) -> Iterator[Entry]:
    """The entries of pod lists."""
    for path in source.paths:
        yield from source.parsed(table_rows(path, _NEEDED), lambda row: _job(source, row))


def _job(source: Source, row: Row) -> Entry:
    if not row.text("scheduled_time"):
        return NEVER_RAN
    if not row.text("deletion_time"):
        return STILL_RAN
    duration_s = span_s(row, row.amount("scheduled_time"), row.amount("deletion_time"), "deletion_time")
    if duration_s == 0:
        return NEVER_RAN
    return TraceJob(
        job_id=source.job_id(row, row.named("name")),
        group=row.text("qos"),
        submit_s=row.amount("creation_time"),
        duration_s=duration_s,
        gpus=row.whole("num_gpu", 0) * row.amount("gpu_milli", 0) / 1000,
        nodes=1,
        cpus=row.amount("cpu_milli", 0) / 1000,
        memory_gib=row.amount("memory_mib", 0) / 1024,
        gpu_types=tuple(filter(None, row.text("gpu_spec").split("|"))),
        finished=row.text("pod_phase") == "Succeeded",
    )


FORMAT = TraceFormat(
    "Alibaba openb, 2023",
    "openb_pod_list_*.csv",
    "github.com/alibaba/clusterdata, cluster-trace-gpu-v2023",
    read,
)
