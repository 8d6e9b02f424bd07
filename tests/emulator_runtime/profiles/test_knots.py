"""The committed knots file: what it promises, without the measurements that it was derived from."""

from __future__ import annotations

import json
import statistics
from itertools import pairwise

import pytest

from emulator_runtime.domain.gpu import Device
from emulator_runtime.profiles.bundled import KNOTS_FILE, ModelColumns
from emulator_runtime.profiles.catalogue import gpu_spec
from emulator_runtime.profiles.table import ProfileTable

MODELS: dict[str, ModelColumns] = json.loads(KNOTS_FILE.read_text(encoding="utf-8"))["models"]
GPUS = (
    "Tesla_K80",
    "Tesla_M40",
    "Tesla_P100-PCIE-16GB",
    "Quadro_RTX_6000",
    "Tesla_V100-PCIE-32GB",
    "NVIDIA_A100-SXM4-40GB",
)
CURVES = [
    pytest.param(columns, id=f"{model}-{gpu}")
    for model, by_gpu in MODELS.items()
    for gpu, columns in by_gpu["gpus"].items()
]


def test_has_every_model_on_every_measured_gpu() -> None:
    assert len(MODELS) == 36
    assert all(set(columns["gpus"]) == set(GPUS) for columns in MODELS.values())


def test_curves_have_about_sixteen_knots() -> None:
    knots = [len(step["batch"]) for columns in MODELS.values() for step in columns["gpus"].values()]
    assert min(knots) >= 14
    assert max(knots) <= 18
    assert 15 <= statistics.mean(knots) <= 17


@pytest.mark.parametrize("columns", CURVES)
def test_step_knots_are_usable(columns: dict[str, list[int]]) -> None:
    batches = columns["batch"]
    assert batches[0] == 1
    assert batches[-1] <= 256
    assert all(low < high for low, high in pairwise(batches))
    usual = {1, 2, 4, 8, 16, 32, 64, 128, 256}
    assert {batch for batch in usual if batch <= batches[-1]} <= set(batches), "usual batch sizes are exact"
    assert len(columns["forward_us"]) == len(columns["backward_us"]) == len(batches)
    assert min(columns["forward_us"]) > 0
    assert min(columns["backward_us"]) > 0


@pytest.mark.parametrize("model", MODELS)
def test_memory_knots_are_usable(model: str) -> None:
    memory = MODELS[model]["memory"]
    batches, peak, persistent = memory["batch"], memory["peak_bytes"], memory["persistent_bytes"]
    assert batches[0] == 1
    assert all(low < high for low, high in pairwise(batches))
    assert all(low < high for low, high in pairwise(peak))
    assert len(peak) == len(persistent) == len(batches)
    assert all(0 < at_rest < at_peak for at_rest, at_peak in zip(persistent, peak, strict=True))
    assert MODELS[model]["sample_bytes"] == 3 * 224 * 224 * 4


def test_names_its_source_and_how_it_was_made() -> None:
    about = json.loads(KNOTS_FILE.read_text(encoding="utf-8"))["about"]
    assert "PVLDB 18(6), 2025" in about["source"]
    assert "measured points only" in about["knots"]


def test_predicts_where_profiling_ran_out_of_memory() -> None:
    """98 series end before batch 256, presumably for lack of memory: usable memory and peak must say about the same."""
    table = ProfileTable.bundled()
    errors = []
    for model in table.models:
        for gpu in GPUS:
            last = table.last_measured_batch(model, gpu)
            if last < 256:
                errors.append(abs(_largest_that_fits(table, model, gpu) - last) / last)
    assert len(errors) == 98
    assert statistics.median(errors) <= 0.016
    assert sorted(errors)[int(0.95 * len(errors))] <= 0.075


def _largest_that_fits(table: ProfileTable, model: str, gpu: str) -> int:
    usable = Device("n0", 0, gpu, gpu_spec(gpu, "test").memory_bytes).usable_memory_bytes
    low, high = 0, 512
    while low < high:
        middle = (low + high + 1) // 2
        if table.memory(model, middle, extrapolate=True)[0] <= usable:
            low = middle
        else:
            high = middle - 1
    return low
