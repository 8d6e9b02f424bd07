"""Inputs of Pollux's simulator (Qiao et al., "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning",
OSDI 2021; schema: petuum/adaptdl, branch osdi21-artifact, simulator/workloads/*.csv and module applications). Submissions are in
seconds.

A job's duration isn't in the file. It is what `Application.get_configurations` computes: the iterations until the last epoch at
the job's batch size (validation-BATCH.csv), times the measured time of a step on the job's number of GPUs, packed onto nodes of
four (placements.csv, else scalability.csv), interpolated linearly over batch sizes. The folder of these tables is `--durations`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from emulator_runtime.domain.errors import InputError
from scheduler_sims.traces.job import Entry, Source, TraceFormat, TraceJob
from scheduler_sims.traces.rows import Row, table_rows

_NEEDED = ("name", "time", "application", "num_replicas", "batch_size")
_GPUS_PER_NODE = 4
EPOCHS: Mapping[str, int] = {"bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50}
"""Epochs of a job by application (`max_epochs` in its module applications)."""
_MOST_LOCAL: Mapping[str, int] = {"yolov3": 8}
"""The largest batch on one GPU where it isn't the largest measured one (`max_local_bsz` there)."""

Point = tuple[int, float, float]
"""Batch size on a GPU, seconds of a step, seconds of its synchronisation."""


@dataclass(frozen=True, slots=True)
class _Application:
    """Measurements of one application. `iterations`: until its last epoch, by batch size. `steps`: by nodes' GPUs, such as 44."""

    iterations: Sequence[tuple[int, float]]
    steps: Mapping[str, Sequence[Point]]
    most_local: int

    def duration_s(self, gpus: int, batch_size: int) -> float | None:
        """Seconds alone; None if nothing like it was measured."""
        local = ceil(batch_size / gpus)
        accumulations = ceil(local / self.most_local) - 1
        points = self.steps.get(_packed(gpus), ())
        each = ceil(local / (accumulations + 1))
        step_s = _between([(size, time) for size, time, _ in points], each)
        sync_s = _between([(size, time) for size, _, time in points], each)
        iterations = _between(self.iterations, batch_size)
        if step_s is None or sync_s is None or iterations is None:
            return None
        return iterations * (step_s + accumulations * (step_s - sync_s))


def read(source: Source) -> Iterator[Entry]:
    """The entries of workloads. Raises InputError without the applications' measurements."""
    if source.durations is None:
        raise InputError(
            "--durations", "is missing: this format has no durations; name the artifact's simulator/traces folder"
        )
    applications: dict[str, _Application] = {}
    for path in source.paths:
        yield from source.parsed(table_rows(path, _NEEDED), lambda row: _job(source, row, applications))


def _job(source: Source, row: Row, applications: dict[str, _Application]) -> Entry:
    name, gpus, batch_size = (
        row.named("application"),
        row.whole("num_replicas", least=1),
        row.whole("batch_size", least=1),
    )
    if name not in EPOCHS:
        raise row.error("application", f"{name} is none of {', '.join(EPOCHS)}")
    if name not in applications:
        assert source.durations is not None
        applications[name] = _application(source.durations / name, name)
    duration_s = applications[name].duration_s(gpus, batch_size)
    if duration_s is None:
        raise row.error("batch_size", f"{batch_size} on {gpus} GPUs is outside what was measured of {name}")
    return TraceJob(source.job_id(row, row.named("name")), row.amount("time"), duration_s, gpus, model=name)


def _application(folder: Path, name: str) -> _Application:
    epochs, iterations = EPOCHS[name], []
    for path in sorted(folder.glob("validation-*.csv")):
        rows = list(table_rows(path, ("iteration",)))
        if len(rows) < epochs:
            raise InputError(str(path), f"has {len(rows)} epochs, not {epochs}")
        size = path.stem.removeprefix("validation-")
        if not size.isdecimal():
            raise InputError(str(path), "must have the batch size in its name: validation-128.csv")
        iterations.append((int(size), rows[epochs - 1].amount("iteration")))
    if not iterations:
        raise InputError(
            str(folder), "has no validation-BATCH.csv; name the artifact's simulator/traces folder by --durations"
        )
    steps: dict[str, list[Point]] = {}
    for row in table_rows(
        folder / "scalability.csv", ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
    ):
        gpus = row.whole("num_replicas", least=1)
        if row.whole("num_nodes") == len(_packed(gpus)):
            steps.setdefault(_packed(gpus), []).append(_point(row))
    placed: dict[str, list[Point]] = {}
    for row in table_rows(folder / "placements.csv", ("placement", "local_bsz", "step_time", "sync_time")):
        placed.setdefault(row.named("placement"), []).append(_point(row))
    known = {packing: sorted(points) for packing, points in (steps | placed).items()}
    largest = max((size for points in placed.values() for size, _, _ in points), default=1)
    return _Application(sorted(iterations), known, _MOST_LOCAL.get(name, largest))


def _point(row: Row) -> Point:
    return row.whole("local_bsz"), row.amount("step_time"), row.amount("sync_time")


def _packed(gpus: int) -> str:
    """GPUs on each node, the smallest rotation of digits as in placements.csv: six GPUs are 24."""
    full, rest = divmod(gpus, _GPUS_PER_NODE)
    return (str(rest) if rest else "") + str(_GPUS_PER_NODE) * full


def _between(points: Sequence[tuple[int, float]], x: int) -> float | None:
    """The value at `x`, linearly between the neighbouring points; None outside."""
    place = bisect_left(points, (x, 0.0))
    if place < len(points) and points[place][0] == x:
        return points[place][1]
    if not 0 < place < len(points):
        return None
    (left, low), (right, high) = points[place - 1], points[place]
    return low + (high - low) * (x - left) / (right - left)


FORMAT = TraceFormat(
    "Pollux's simulator",
    "a workload; --durations FOLDER with the applications' measurements",
    "github.com/petuum/adaptdl, branch osdi21-artifact",
    read,
)
