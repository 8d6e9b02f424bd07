"""Reads the profiles that are distributed with emugpu: the knots written by tools/derive_profiles.py."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from emulator_runtime.profiles.curves import Curve, MemoryCurves, ModelProfile, StepCurves

KNOTS_FILE = Path(__file__).with_name("knots.json")


class StepColumns(TypedDict):
    """Step times of one model on one GPU type, in integer microseconds like the measurements."""

    batch: list[int]
    forward_us: list[int]
    backward_us: list[int]


class MemoryColumns(TypedDict):
    """Memory of one model, the same for all GPU types."""

    batch: list[int]
    peak_bytes: list[int]
    persistent_bytes: list[int]


class ModelColumns(TypedDict):
    """All knots of one model."""

    sample_bytes: int
    memory: MemoryColumns
    gpus: dict[str, StepColumns]


def read_knots(path: Path = KNOTS_FILE) -> dict[str, ModelProfile]:
    """The models in `path` by name. The file is generated and tested; as every job reads it, it isn't validated again."""
    models: dict[str, ModelColumns] = json.loads(path.read_text(encoding="utf-8"))["models"]
    return {name: _model(columns) for name, columns in models.items()}


def _model(columns: ModelColumns) -> ModelProfile:
    memory = columns["memory"]
    batches = tuple(memory["batch"])
    peak, persistent = Curve(batches, tuple(memory["peak_bytes"])), Curve(batches, tuple(memory["persistent_bytes"]))
    steps = {gpu_type: _step(step) for gpu_type, step in columns["gpus"].items()}
    return ModelProfile(columns["sample_bytes"], MemoryCurves(peak, persistent), steps)


def _step(columns: StepColumns) -> StepCurves:
    batches = tuple(columns["batch"])
    return StepCurves(
        forward_s=Curve(batches, _seconds(columns["forward_us"])),
        backward_s=Curve(batches, _seconds(columns["backward_us"])),
    )


def _seconds(microseconds: Sequence[int]) -> tuple[float, ...]:
    return tuple([value / 1e6 for value in microseconds])
