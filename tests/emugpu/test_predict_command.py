"""`emugpu predict`, from arguments to output and exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emugpu.__main__ import main
from emulator_runtime.domain.units import GIB
from emulator_runtime.prediction.records import Launch, RankTrace, Trace, Work
from tests.support.traces import Host

A100 = "NVIDIA_A100-SXM4-40GB"
WORK = Work("gemm", 1, flops=4e12, precision=4)


@pytest.fixture
def trace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder whose trace has three steps, and 50 GiB of memory."""
    host = Host()
    host.memory(50 * GIB)
    for _ in range(3):
        host.records.append(Launch(0, 0, 0, 0, WORK))
        host.launch(1000)
    read = Trace([RankTrace(0, host.records, {}, (A100,))])
    monkeypatch.setattr("emugpu.prediction.predict.read_trace", lambda folder: read if folder == tmp_path else None)
    return tmp_path


def test_a_line_for_each_type(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(trace), "--gpu", "A100", "--gpu", "H100"]) == 0
    out = capsys.readouterr().out
    rows = {line.split()[0]: line for line in out.splitlines() if line.startswith("NVIDIA")}
    assert "out of memory" in rows[A100]
    assert "GiB of" in rows["NVIDIA-H100-80GB-HBM3"]
    assert all("compute" in row for row in rows.values() if "bound" not in row and "rank" not in row)
    assert f"{A100}: out of memory on rank 0 (50." in out


def test_json_and_files(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "out" / "new"
    assert main(["predict", str(trace), "--format", "json", "--out", str(folder)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((folder / "prediction.json").read_text(encoding="utf-8"))
    (found,) = printed
    assert found["gpu_type"] == A100
    assert found["out_of_memory_ranks"] == [0]
    assert found["step_s"] == pytest.approx(sum(found["step_seconds"].values()))
    assert found["ranks"][0]["steps"] == 3
    assert (folder / f"timeline-{A100}.json.gz").stat().st_size > 100


def test_a_step_time_anchors_all_types(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["predict", str(trace), "--gpu", "A100", "--gpu", "H100", "--format", "json", "--step-time", "30ms"]
    assert main(arguments) == 0
    a100, h100 = json.loads(capsys.readouterr().out)
    assert a100["step_s"] == pytest.approx(0.03, rel=1e-5)
    assert a100["ranks"][0]["factor"] == h100["ranks"][0]["factor"]
    assert h100["step_s"] < 0.03


def test_without_steps_it_says_so(
    trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    once = Trace([RankTrace(0, [Launch(0, 0, 0, 0, WORK)], {}, (A100,))])
    monkeypatch.setattr("emugpu.prediction.predict.read_trace", lambda folder: once)
    assert main(["predict", str(trace)]) == 0
    assert "No step was found" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--step-time", "fast"], "--step-time: must be a time above 0 such as 86ms, not fast"),
        (["--step-time", "0ms"], "--step-time: must be a time above 0"),
        (["--step-time", "1h"], "--step-time: rank 0 does nothing twice in a row"),
        (["--network-gbps", "0"], "--network-gbps: must be a number above 0"),
        (["--network-gbps", "inf"], "--network-gbps: must be a number above 0"),
        (["--gpu", "A10000"], "--gpu: unknown GPU type 'A10000'"),
        (["--gpu", "A100", "--gpu", "H100", "--kernel-table", "x"], "--kernel-table: has the times of one GPU type"),
    ],
)
def test_wrong_arguments_are_one_line(
    trace: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(trace), *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
