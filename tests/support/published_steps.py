"""Step times that Wang et al. measured (GPEmu, PVLDB 18(6) 2025), beside the steps of traced programs.

EMUGPU_MEASUREMENTS names a folder with compute.csv.gz: time of forward and backward pass of 36 torchvision models on 6 GPU types.
"""

from __future__ import annotations

import csv
import gzip
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from emugpu.learning.measured_steps import Copied, MeasuredStep, StepPart
from emulator_runtime.prediction.estimators import TABLE, Estimator
from emulator_runtime.prediction.records import Work
from emulator_runtime.prediction.steps import StepWork

Pair = tuple[str, int]  # model, batch size
VARIABLE = "EMUGPU_MEASUREMENTS"


def measurements() -> Path | None:
    """The file of step times, if the variable names its folder."""
    path = Path(os.environ.get(VARIABLE, "")) / "compute.csv.gz"
    return path if path.is_file() else None


def measured_seconds(path: Path) -> dict[str, dict[Pair, float]]:
    """By GPU type; what the source filled in by regression is left out."""
    times: defaultdict[str, dict[Pair, float]] = defaultdict(dict)
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["origin"] == "measured":
                seconds = float(row["forward_s"]) + float(row["backward_s"])
                times[row["gpu"]][row["model"], int(row["batch_size"])] = seconds
    return dict(times)


def steps_of(parts: Mapping[Pair, Sequence[StepPart]], seconds: Mapping[Pair, float]) -> dict[Pair, MeasuredStep]:
    """Those of a GPU type that were both traced and measured. All steps of a model are one program."""
    return {
        pair: MeasuredStep(pair[0], own, seconds[pair] * 1e9) for pair, own in sorted(parts.items()) if pair in seconds
    }


def step_works(step: MeasuredStep, estimator: Estimator) -> list[StepWork]:
    """As `emulator_runtime.prediction.steps.step_works` has them for a trace."""
    works = []
    for part in step.parts:
        if isinstance(part.work, Copied):
            estimate = estimator.copy(0, 0, part.work.bytes)
        else:
            assert isinstance(part.work, Work)
            estimate = estimator.work(part.work)
        launch_ns = estimator.dispatch_ns if estimate.dispatch_ns is None else estimate.dispatch_ns
        dispatch_ns = launch_ns if part.launched else 0
        works.append(StepWork(estimate.duration_ns, dispatch_ns, estimate.source == TABLE, part.waited))
    return works
