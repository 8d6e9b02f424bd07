"""Pollux's model and search in a replay of its own simulator: workload-6, 160 jobs on 16 nodes of 4 GPUs, rounds of 60 s.

With EMUGPU_SCHEDULER_DATA=DIR the files are read from DIR/pollux: petuum/adaptdl, branch osdi21-artifact at c793c70
(Apache-2.0; Qiao et al., OSDI 2021), its application traces and published mean JCTs. The replay follows its simulator: a job's
steps take what was measured for its placement, its gradients are those measured in its epoch, a job ends with its last epoch,
a restart takes 30 s.
"""

from __future__ import annotations

import csv
import gzip
import os
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from math import ceil
from pathlib import Path

import numpy as np
import pytest
from scipy.interpolate import LinearNDInterpolator

from scheduler_sims.policies.goodput.genetic import Search, search
from scheduler_sims.policies.goodput.speeds import Batches, Observation, Speeds, best, fit

DATA = Path(os.environ.get("EMUGPU_SCHEDULER_DATA", "")) / "pollux"
pytestmark = [
    pytest.mark.skipif(not os.environ.get("EMUGPU_SCHEDULER_DATA"), reason="EMUGPU_SCHEDULER_DATA names no folder"),
    pytest.mark.slow,
]
EPOCHS = {"bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50}
NODES, GPUS, ROUND_S, RESTART_S, MOST_GPUS = 16, 4, 60.0, 30.0, 64
_EPSILON = 1e-8
GENERATIONS = 20
"""A fifth of the original's, for the time of the test."""


def rows_of(name: str) -> list[dict[str, str]]:
    with gzip.open(DATA / name, "rt") if name.endswith(".gz") else (DATA / name).open() as file:
        return list(csv.DictReader(file))


class Application:
    """What was measured of one application."""

    def __init__(self, name: str) -> None:
        self.name, self.epochs = name, EPOCHS[name]
        self.placements: dict[str, list[tuple[int, float, float]]] = defaultdict(list)
        self.points: dict[tuple[int, int, int], list[tuple[float, float]]] = defaultdict(list)
        for row in rows_of("applications/placements.csv.gz"):
            if row["application"] == name:
                key, each = row["placement"], int(row["local_bsz"])
                times = float(row["step_time"]), float(row["sync_time"])
                self.placements[key].append((each, *times))
                self.points[len(key), sum(map(int, key)), each].append(times)
        measured = [(key, tuple(np.mean(times, axis=0))) for key, times in self.points.items()]
        for row in rows_of("applications/scalability.csv.gz"):
            if row["application"] == name:
                key = int(row["num_nodes"]), int(row["num_replicas"]), int(row["local_bsz"])
                measured.append((key, (float(row["step_time"]), float(row["sync_time"]))))
        self.between = LinearNDInterpolator([key for key, _ in measured], [times for _, times in measured])
        self.validation: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
        for row in rows_of("applications/validation.csv.gz"):
            if row["application"] == name:
                stats = tuple(float(row[column]) for column in ("progress", "grad_sqr", "grad_var"))
                self.validation[int(row["batch_size"])].append(stats)  # type: ignore[arg-type]
        sizes = [each for (_, _, each) in self.points]
        most_each = 8 if name == "yolov3" else max(sizes)
        self.batches = Batches(min(self.validation), max(self.validation), min(sizes), most_each, accumulate=True)
        self._times: dict[tuple[tuple[int, ...], int], tuple[float, float]] = {}

    def step(self, placement: tuple[int, ...], each: int) -> tuple[float, float]:
        """Seconds of a step and of its exchange."""
        key = min(placement[n:] + placement[:n] for n in range(len(placement)))
        if (key, each) not in self._times:
            known = sorted(self.placements.get("".join(map(str, key)), ()))
            if known:
                sizes = [size for size, _, _ in known]
                found = tuple(float(np.interp(each, sizes, [row[n] for row in known])) for n in (1, 2))
            else:
                found = tuple(self.between([min(len(key), 16), sum(key), each])[0])
            assert found[0] == found[0], (self.name, key, each)
            self._times[key, each] = found  # type: ignore[assignment]
        return self._times[key, each]

    def gradients(self, batch_size: int, epoch: int) -> tuple[float, float]:
        """Square and variance of the gradient."""
        below = max(size for size in self.validation if size <= batch_size)
        above = min(size for size in self.validation if size >= batch_size)
        low, high = self.validation[below][epoch][1:], self.validation[above][epoch][1:]
        part = (batch_size - below) / (above - below) if above > below else 0.0
        return low[0] + part * (high[0] - low[0]), low[1] + part * (high[1] - low[1])

    def progress(self, epoch: int) -> float:
        return min(rows[epoch - 1][0] for rows in self.validation.values()) if epoch else 0.0


@cache
def application(name: str) -> Application:
    return Application(name)


@dataclass
class Trainee:
    """A job of the replay."""

    name: str
    app: Application
    submit_s: float
    fixed_batch: int = 0
    placement: tuple[int, ...] = ()
    each: int = 0
    accumulated: int = 0
    pause_s: float = 0.0
    progress: float = 0.0
    epoch: int = 0
    attained_gpu_s: float = 0.0
    restarts: int = -1
    end_s: float | None = None
    gradients: tuple[float, float] = (1.0, 1.0)
    observed: dict[tuple[int, int, int], Observation] = field(default_factory=dict)
    speeds: Speeds | None = None
    outdated: bool = False

    @property
    def noise(self) -> float:
        """The gradient noise scale in samples."""
        square, variance = self.gradients
        return max(0.0, variance / square * self.app.batches.least) if square > 0 else float("inf")

    def model(self) -> Speeds | None:
        """The fitted speeds, fitted again only where somebody asks for them."""
        if self.outdated:
            self.speeds, self.outdated = fit(list(self.observed.values())), False
        return self.speeds

    @property
    def most_gpus(self) -> int:
        if self.app.name == "ncf":
            return 1
        explored = max((key[1] for key in self.observed), default=0)
        return min(max(2 * explored, 1), MOST_GPUS, self.app.batches.most // self.app.batches.least_each)

    def choose_batch(self) -> None:
        batches, gpus, speeds = self.app.batches, sum(self.placement), self.model()
        size = self.fixed_batch or (0 if speeds else max(batches.least, batches.least_each * gpus))
        if size:
            local = ceil(size / gpus - _EPSILON)
            self.accumulated = ceil(local / batches.most_each - _EPSILON) - 1
            if gpus == 1 and size > batches.least:
                self.accumulated = max(1, self.accumulated)
            self.each = ceil(local / (self.accumulated + 1) - _EPSILON)
        else:
            assert speeds is not None
            found = best(speeds, batches, self.noise, np.full(1, float(len(self.placement))), np.full(1, float(gpus)))
            self.each, self.accumulated = int(found.each[0]), int(found.accumulated[0])
        self.each = min(self.each, int(batches.most / (gpus * (self.accumulated + 1))))

    def run(self, now_s: float, seconds: float) -> None:
        """Trains for some time, epoch by epoch."""
        gpus, batches = sum(self.placement), self.app.batches
        waited = min(self.pause_s, seconds)
        self.pause_s -= waited
        self.attained_gpu_s += waited * gpus
        now_s, seconds = now_s + waited, seconds - waited
        while gpus and seconds > 0 and self.end_s is None:
            batch_size = gpus * self.each * (self.accumulated + 1)
            step_s, sync_s = self.app.step(self.placement, self.each)
            self.gradients = square, variance = self.app.gradients(batch_size, self.epoch)
            gain = (variance + square) / (variance / (batch_size / batches.least) + square)
            key = (len(self.placement), gpus, self.each)
            if key not in self.observed:
                self.observed[key] = Observation(*key, step_s, step_s - sync_s)
                self.outdated = True
            per_s = gain / (step_s + (step_s - sync_s) * self.accumulated)
            following = self.app.progress(self.epoch + 1)
            if self.progress + per_s * seconds < following:
                used = seconds
                self.progress += per_s * seconds
            else:
                used = float(round((following - self.progress) / per_s))
                self.epoch += 1
                self.progress = following
                if self.epoch > self.app.epochs - 1:
                    self.end_s = now_s + used
            now_s, seconds = now_s + used, seconds - used
            self.attained_gpu_s += used * gpus
            self.choose_batch()

    def move(self, placement: tuple[int, ...]) -> None:
        self.placement = placement
        if placement:
            self.choose_batch()
            self.pause_s = RESTART_S
            self.restarts += 1


def speedups(job: Trainee, jobs: int) -> np.ndarray:
    """The table of a job by nodes and GPUs, relative to an equal part of the cluster."""
    fair, table = ceil(NODES * GPUS / jobs), np.zeros((NODES + 1, MOST_GPUS + 1))
    shapes = [(n, g) for n in range(1, NODES + 1) for g in range(n, min(GPUS * n, job.most_gpus) + 1)]
    nodes, gpus = (np.array([float(shape[k]) for shape in shapes]) for k in (0, 1))
    if (speeds := job.model()) is None:
        values = gpus / fair
    else:
        base = best(speeds, job.app.batches, job.noise, np.ones(1), np.full(1, float(fair))).goodput[0]
        values = best(speeds, job.app.batches, job.noise, nodes, gpus).goodput / base
    table[nodes.astype(int), gpus.astype(int)] = values
    return table


def replayed(workload: str, generations: int, seed: int = 0) -> dict[str, float]:
    """The JCT of each job."""
    jobs = [
        Trainee(row["name"], application(row["application"]), float(row["time"]), 32768 * (row["application"] == "ncf"))
        for row in rows_of(workload)
    ]
    plans: list[dict[str, np.ndarray]] = []
    present: dict[str, np.ndarray] = {}
    now_s, random = 0.0, np.random.default_rng(seed)
    while any(job.end_s is None for job in jobs):
        for job in jobs:
            if job.end_s is None:
                job.run(now_s, ROUND_S)
        now_s += ROUND_S
        here = [job for job in jobs if job.submit_s <= now_s and job.end_s is None]
        here.sort(key=lambda job: (job.attained_gpu_s, job.submit_s))
        if not here:
            continue
        none = np.zeros(NODES, dtype=np.int16)
        ages = np.array([now_s - job.submit_s for job in here])
        restarts = np.array([max(0, job.restarts) for job in here])
        problem = Search(
            speedups=np.stack([speedups(job, len(here)) for job in here]),
            capacity=np.full(NODES, GPUS),
            present=np.stack([present.get(job.name, none) for job in here]),
            most_gpus=np.array([job.most_gpus for job in here]),
            most_nodes=np.full(len(here), 16),
            restart=np.maximum(ages - restarts * RESTART_S, 0) / (ages + RESTART_S),
            scale=1 / GPUS,
            equal=False,
        )
        first = [np.stack([plan.get(job.name, none) for job in here]) for plan in plans]
        start = np.stack(first) if first else np.zeros((0, len(here), NODES), dtype=np.int16)
        found = search(problem, start, random, 100, generations)
        plans = [{job.name: plan[n] for n, job in enumerate(here)} for plan in found]
        for n, job in enumerate(here):
            if (found[0][n] != present.get(job.name, none)).any():
                job.move(tuple(int(count) for count in found[0][n] if count))
        present = plans[0]
    return {job.name: (job.end_s or 0.0) - job.submit_s for job in jobs}


@pytest.mark.timeout(1800)
def test_the_mean_jct_is_within_five_percent_of_the_published_one() -> None:
    published = {
        (row["experiment"], row["policy_load"], row["workload"]): float(row["avg_jct_s"])
        for row in rows_of("published_avg_jct.csv")
    }
    jct_s = replayed("input_workload-6.csv", GENERATIONS)
    assert len(jct_s) == 160
    assert np.mean(list(jct_s.values())) == pytest.approx(
        published["results-jobload", "pollux-1.0", "workload-6"], rel=0.05
    )
