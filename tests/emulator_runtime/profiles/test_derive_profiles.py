"""The tool that made the knots file, on a small made-up data set."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

TOOL = Path(__file__).parents[3] / "tools" / "derive_profiles.py"


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("derive_profiles", TOOL)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tool = _load()


def kinked(batch: int) -> float:
    """Seconds: level at first, then two slopes and a jump, as measured curves have them."""
    return 0.010 + 0.0002 * max(batch - 20, 0) + 0.0004 * max(batch - 90, 0) + (0.004 if batch > 50 else 0.0)


class DataSet:
    """A folder in the form of the measurements; each method adds rows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.compute: list[str] = []
        self.memory: list[str] = []
        self.coverage: list[str] = []

    def model(
        self, name: str, gpu: str, last: int = 140, forward: Callable[[int], float] = kinked, memory_scale: float = 1.0
    ) -> None:
        for batch in range(1, last + 1):
            self.compute.append(f"{gpu},{name},{batch},{forward(batch):.6f},{2 * forward(batch):.6f},measured")
            peak = int((1e8 + 1e6 * batch) * memory_scale)
            self.memory.append(f"{gpu},{name},{batch},{peak},{peak // 2},measured")
        self.compute.append(f"{gpu},{name},{last + 1},0.000001,0.000001,regression")

    def write(self) -> Path:
        for name, head, rows in (
            ("compute.csv.gz", "gpu,model,batch_size,forward_s,backward_s,origin", self.compute),
            ("memory.csv.gz", "gpu,model,batch_size,peak_bytes,persistent_bytes,origin", self.memory),
        ):
            with gzip.open(self.folder / name, "wt") as file:
                file.write("\n".join([head, *rows]) + "\n")
        (self.folder / "coverage.csv").write_text("\n".join(["gpu,model,flags", *self.coverage]) + "\n")
        return self.folder


@pytest.fixture
def data(tmp_path: Path) -> DataSet:
    folder = tmp_path / "data"
    folder.mkdir()
    data = DataSet(folder)
    for gpu in ("Tesla_V100-PCIE-32GB", "Tesla_K80", "Tesla_M40"):
        data.model("zebra", gpu)
        data.model("ant", gpu, last=100)
    return data


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "knots.json"


@pytest.fixture(autouse=True)
def unchanged_interpreter() -> Iterator[None]:
    before = list(sys.path)
    yield
    assert sys.path == before


def test_writes_measured_knots_and_reports_small_errors(
    data: DataSet, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main([str(data.write()), "--out", str(out)]) == 0
    models = json.loads(out.read_text())["models"]
    assert list(models) == ["ant", "zebra"]
    columns = models["zebra"]["gpus"]["Tesla_K80"]
    assert {1, 2, 4, 8, 16, 32, 64, 128, 140} <= set(columns["batch"])
    assert {20, 50, 51, 90} <= set(columns["batch"]), "where it bends and jumps"
    assert len(columns["batch"]) <= tool.KNOTS_PER_CURVE
    assert columns["forward_us"] == [round(kinked(batch) * 1e6) for batch in columns["batch"]]
    assert columns["backward_us"] == [round(2 * kinked(batch) * 1e6) for batch in columns["batch"]]
    assert models["ant"]["gpus"]["Tesla_M40"]["batch"][-1] == 100, "regression rows are no measurements"
    printed = capsys.readouterr().out
    assert "2 models, 6 curves" in printed
    assert "all" in printed


def test_same_input_same_bytes_whatever_the_order_of_rows(data: DataSet, out: Path, tmp_path: Path) -> None:
    assert tool.main([str(data.write()), "--out", str(out)]) == 0
    data.compute.reverse()
    data.memory.reverse()
    other = tmp_path / "other.json"
    assert tool.main([str(data.write()), "--out", str(other)]) == 0
    assert out.read_bytes() == other.read_bytes()


def test_check_compares_and_writes_nothing(data: DataSet, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(data.write())
    assert tool.main([folder, "--out", str(out), "--check"]) == 1
    assert not out.exists()
    assert tool.main([folder, "--out", str(out)]) == 0
    assert tool.main([folder, "--out", str(out), "--check"]) == 0
    out.write_text(out.read_text() + "\n")
    before = out.read_bytes()
    assert tool.main([folder, "--out", str(out), "--check"]) == 1
    assert out.read_bytes() == before
    assert "is NOT what" in capsys.readouterr().out


def test_noise_that_knots_cannot_follow_misses_the_target(
    data: DataSet, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data.model("noisy", "Tesla_K80", forward=lambda batch: 0.1 if batch % 2 else 0.2)
    data.model("noisy", "Tesla_M40")
    assert tool.main([str(data.write()), "--out", str(out)]) == 1
    assert not out.exists()
    assert "missed: median <= 1% and p95 <= 7%" in capsys.readouterr().out


def test_memory_is_the_median_without_spoilt_series(data: DataSet, out: Path) -> None:
    data.model("bee", "Tesla_K80", memory_scale=1.0)
    data.model("bee", "Tesla_M40", memory_scale=1.1)
    data.model("bee", "Tesla_V100-PCIE-32GB", memory_scale=1.2)
    data.model("bee", "Quadro_RTX_6000", memory_scale=50.0)
    data.coverage.append("Quadro_RTX_6000,bee,compute_stopped;memory_bad_filled_from_2_points")
    assert tool.main([str(data.write()), "--out", str(out)]) == 0
    memory = json.loads(out.read_text())["models"]["bee"]["memory"]
    assert memory["peak_bytes"] == [int((1e8 + 1e6 * batch) * 1.1) for batch in memory["batch"]]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda d: d.compute.insert(0, "Tesla_K80,x,one,1,1,measured"), "compute.csv.gz:2: is no measurement"),
        (
            lambda d: d.compute.insert(1, "Tesla_K80,x,1,0,1,measured"),
            "compute.csv.gz:3: batch size and measured values must",
        ),
        (lambda d: d.compute.insert(0, "Tesla_K80,x,1,inf,1,measured"), "compute.csv.gz:2: is no measurement"),
        (lambda d: d.compute.insert(0, "Tesla_K80,zebra,7,1,1,measured"), "batch size 7 is there twice"),
        (lambda d: d.compute.insert(0, "Voodoo2,x,1,1,1,measured"), "compute.csv.gz:2: unknown GPU type 'Voodoo2'"),
        (lambda d: d.compute.insert(0, "Tesla_K80,lonely,1,1,1,measured"), "no usable measured series for lonely"),
        (lambda d: d.compute.clear(), "compute.csv.gz: has no measured rows"),
    ],
)
def test_bad_rows_are_named(
    spoil: Callable[[DataSet], None], message: str, data: DataSet, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(data)
    assert tool.main([str(data.write()), "--out", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_missing_damaged_and_foreign_files(data: DataSet, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = data.write()
    assert tool.main([str(folder / "nowhere"), "--out", str(out)]) == 2
    assert "compute.csv.gz: can't be read: " in capsys.readouterr().err
    (folder / "coverage.csv").write_text("gpu,flags\n")
    assert tool.main([str(folder), "--out", str(out)]) == 2
    assert "coverage.csv:1: has no column model" in capsys.readouterr().err
    whole = (folder / "memory.csv.gz").read_bytes()
    for damaged in (whole[: len(whole) // 2], b"not gzip"):
        (folder / "memory.csv.gz").write_bytes(damaged)
        assert tool.main([str(folder), "--out", str(out)]) == 2
        assert "memory.csv.gz: can't be read: " in capsys.readouterr().err


@settings(deadline=None)
@given(st.dictionaries(st.integers(1, 300), st.integers(1, 10**6), min_size=1, max_size=60), st.integers(11, 20))
def test_knots_are_measured_batches_with_both_ends(values: dict[int, int], count: int) -> None:
    knots = tool.choose_knots(values, count)
    assert knots == sorted(set(knots))
    assert set(knots) <= set(values)
    assert {min(values), max(values)} <= set(knots)
    assert len(knots) <= max(count, 11)


def test_a_knot_goes_where_the_curve_bends() -> None:
    values = {batch: 1000 + 5 * batch + (40 * (batch - 97) if batch > 97 else 0) for batch in range(1, 129)}
    assert tool.choose_knots(values) == [1, 2, 4, 8, 16, 32, 64, 97, 128], "straight parts need no more"


def test_quantiles_are_ranks() -> None:
    errors = [i / 100 for i in range(100, 0, -1)]
    assert [tool._quantile(errors, q) for q in (0.5, 0.95, 1.0)] == [0.5, 0.95, 1.0]
    assert tool._quantile([], 0.5) == 0.0
