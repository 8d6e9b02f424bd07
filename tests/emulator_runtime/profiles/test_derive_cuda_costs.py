"""The tool that fitted the constants of the estimates, on made-up steps."""

from __future__ import annotations

import gzip
import importlib.util
import json
import random
import statistics
import sys
from pathlib import Path
from types import ModuleType

import pytest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.profiles.cuda_properties import Roofline

TOOL = Path(__file__).parents[3] / "tools" / "derive_cuda_costs.py"
A100 = "NVIDIA_A100-SXM4-40GB"


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("derive_cuda_costs", TOOL)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["derive_cuda_costs"] = module
    spec.loader.exec_module(module)
    return module


tool = _load()


def made_up_steps(count: int = 40) -> dict[tuple[str, int], object]:
    chance = random.Random("steps")
    steps = {}
    for number in range(count):
        works = chance.randint(50, 3000)
        work = tool.StepWork(works, works - 5, chance.uniform(1e8, 1e10), chance.uniform(1e9, 1e11))
        work.convolutions["tf32"] = tool.Products()
        work.convolutions["tf32"].add(
            chance.uniform(1e11, 1e13), chance.choice([16, 64, 256]), chance.choice([32, 576])
        )
        work.products["fp32"] = tool.Products()
        work.products["fp32"].add(chance.uniform(1e10, 1e11), 64, 512)
        steps[f"model{number}", 64] = work
    return steps


def test_constants_are_found_again_from_the_times_that_they_make() -> None:
    truth = Roofline(0.9, 0.6, 0.7, 1.3, 8.0, 8.0, 15000.0, 40000.0)
    steps = made_up_steps()
    times = {key: work.seconds(A100, truth) for key, work in steps.items()}
    found = tool.fit(A100, steps, times)
    errors = tool.errors(A100, found, steps, times)
    assert statistics.median(map(abs, errors.values())) < 0.02
    assert found.memory_part == pytest.approx(truth.memory_part, rel=0.05)


def test_the_formula_is_the_cores() -> None:
    """cost.c; one convolution of 1e12 operations in TF32, 1e9 bytes."""
    work = tool.StepWork()
    arguments = {"kind": 2, "flops": 1e12, "bytes": 1e9, "precision": 2, "columns": 16, "depth": 64}
    work.add({"name": "convolution_forward", "args": arguments})
    work.add({"name": "batch_norm", "args": {"kind": 4, "flops": 0, "bytes": 1e9, "precision": 1}})
    work.add({"name": "Memcpy HtoD", "args": {"bytes": 1e9}})
    constants = Roofline(0.5, 0.5, 0.5, 2.0, 8.0, 8.0, 1e6, 1e3)
    expected = 1e12 * (1 + 8 / 16) * (1 + 8 / 64) / (156e12 * 0.5) + (1e9 + 2 * 1e9) / (1555e9 * 0.5) + 2 * 1e-3
    assert work.seconds(A100, constants) == pytest.approx(expected)
    slow_host = Roofline(0.5, 0.5, 0.5, 2.0, 8.0, 8.0, 1e6, 1e9)
    assert work.seconds(A100, slow_host) == 2


def test_a_trace_is_cut_at_its_marks() -> None:
    def event(name: str, **arguments: object) -> str:
        return json.dumps({"ph": "X", "name": name, "args": arguments}, separators=(",", ":")) + ",\n"

    mark = event("Memcpy HtoD", bytes=tool.MARK_BYTES)
    lines = [
        "[\n",
        event("before"),
        mark,
        event("one"),
        event("Memset", bytes=4),
        mark,
        event("between"),
        mark,
        mark,
        "{}]\n",
    ]
    first, second = tool.works_between_marks(lines)
    assert (first.works, first.launches, first.other_bytes) == (2, 1, 4)
    assert second.works == 0


def test_steps_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "steps.json"
    steps = made_up_steps(3)
    path.write_text(tool.steps_json(steps))
    assert tool.read_steps(path) == steps


@pytest.mark.parametrize("text", ["{", "{}", '{"steps": [{"model": "m"}]}'])
def test_a_file_that_has_no_steps_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "steps.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"steps\.json: isn't a file of steps, make one with --run"):
        tool.read_steps(path)


@pytest.mark.parametrize(
    ("text", "message"), [("gpu\nx\n", "isn't a file of step times"), ("", "has no measured times of NVIDIA_A100")]
)
def test_measurements_that_are_none_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "compute.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    with pytest.raises(InputError, match=message):
        tool.read_measured(path)


def test_a_missing_folder_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main([str(tmp_path / "nothing"), str(tmp_path / "steps")]) == 2
    assert capsys.readouterr().err.startswith("derive_cuda_costs: ")


def test_linear_equations() -> None:
    assert tool.solve([[0, 2], [4, 1]], [6, 11]) == [2, 3]
