"""`emugpu profile import-trace`, from arguments to the file, its use by `emugpu predict`, and exit status."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from emugpu.__main__ import main
from emulator_runtime.prediction.estimators import Roofline
from emulator_runtime.prediction.learned.estimator_file import STEP, read_estimator
from emulator_runtime.prediction.records import Launch, RankTrace, Trace, Work, WorkKind

A100, V100 = "NVIDIA_A100-SXM4-40GB", "Tesla_V100-PCIE-32GB"
SIZES = (256, 512, 768, 1024, 1536, 2048, 3072)


def product(n: int) -> Work:
    return Work("gemm", WorkKind.PRODUCT, 2.0 * n**3, 12.0 * n**2, 1, float(n), float(n))


def profiler_trace(path: Path, factor: float, device: str = "NVIDIA A100-SXM4-40GB") -> Path:
    """Products of matrices that take `factor` times what the roofline says."""
    events: list[object] = []
    for number, n in enumerate(SIZES):
        us = factor * Roofline(A100).work(product(n)).duration_ns / 1000
        shapes = {"Input Dims": [[n, n], [n, n]], "Input type": ["float", "float"], "External id": number}
        events.append({"cat": "cpu_op", "name": "aten::mm", "args": shapes})
        launch = {"grid": [n, 1, 1], "block": [128, 1, 1], "External id": number}
        events.append({"cat": "kernel", "name": "ampere_sgemm", "dur": us, "args": launch})
    path.write_text(json.dumps({"deviceProperties": [{"name": device}], "traceEvents": events}), encoding="utf-8")
    return path


def a_trace(n: int) -> Trace:
    launches = [Launch(0, 0, 0, 0, product(n)) for _ in range(4)]
    return Trace([RankTrace(0, launches, {}, (A100,))])


def test_kernels_are_learned_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, trace = tmp_path / "a100.estimator", profiler_trace(tmp_path / "trace.json", 2.0)
    assert main(["profile", "import-trace", str(trace), "--gpu", "A100", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "product" in printed
    assert f"{A100} is in {out}" in printed
    monkeypatch.setattr("emugpu.prediction.predict.read_trace", lambda folder: a_trace(int(folder.name)))
    assert main(["predict", "2500", "--gpu", "A100", "--estimator", str(out), "--format", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["step_s"] == pytest.approx(2 * Roofline(A100).work(product(2500)).duration_ns / 1e9, rel=1e-3)
    (rank,) = found["ranks"]
    assert list(rank["estimated_seconds_by_source"]) == ["learned"]
    assert rank["estimate_errors_by_source"]["learned"] < 0.01
    assert main(["predict", "2048", "--gpu", "A100", "--estimator", str(out), "--format", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert list(found["ranks"][0]["estimated_seconds_by_source"]) == ["table"]  # it was measured itself


def test_the_table_shows_the_source_and_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, trace = tmp_path / "a100.estimator", profiler_trace(tmp_path / "trace.json", 2.0)
    assert main(["profile", "import-trace", str(trace), "--gpu", "A100", "--out", str(out)]) == 0
    monkeypatch.setattr("emugpu.prediction.predict.read_trace", lambda folder: a_trace(2500))
    monkeypatch.setenv("COLUMNS", "150")
    capsys.readouterr()
    assert main(["predict", str(tmp_path), "--gpu", "A100", "--estimator", str(out)]) == 0
    assert "learned 100% (±0.0%)" in capsys.readouterr().out
    assert main(["predict", str(tmp_path), "--gpu", "A100"]) == 0
    assert "roofline 100%" in capsys.readouterr().out


def test_a_file_keeps_its_other_gpu_types(tmp_path: Path) -> None:
    out = tmp_path / "mine.estimator"
    for gpu, device in (("A100", "NVIDIA A100-SXM4-40GB"), ("V100", "Tesla V100-PCIE-32GB")):
        trace = profiler_trace(tmp_path / "trace.json", 2.0, device)
        assert main(["profile", "import-trace", str(trace), "--gpu", gpu, "--out", str(out)]) == 0
    assert sorted(read_estimator(out)) == [A100, V100]


def test_steps_are_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("emugpu.learning.measured_steps.read_trace", lambda folder: a_trace(int(folder.name)))
    rows = [f"{n},A100,{2 * Roofline(A100).work(product(n)).duration_ns}ns,program {n}" for n in SIZES]
    table, out = tmp_path / "steps.csv", tmp_path / "a100.estimator"
    table.write_text("\n".join(["trace,gpu,step_time,program", *rows]) + "\n", encoding="utf-8")
    assert main(["profile", "import-trace", str(table), "--gpu", "A100", "--out", str(out)]) == 0
    assert "step" in capsys.readouterr().out
    assert read_estimator(out)[A100].errors[STEP].samples == len(SIZES)


def test_unknown_gpus_and_unmatched_kernels_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = profiler_trace(tmp_path / "trace.json", 2.0, "NVIDIA A100 made of wood")
    document = json.loads(trace.read_text(encoding="utf-8"))
    launch = {"grid": [1, 1, 1], "block": [1, 1, 1]}
    document["traceEvents"].append({"cat": "kernel", "name": "cutlass_gemm", "dur": 1, "args": launch})
    trace.write_text(json.dumps(document), encoding="utf-8")
    assert main(["profile", "import-trace", str(trace), "--gpu", "A100", "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "the traces are of a NVIDIA A100 made of wood, which the catalogue doesn't have" in printed
    assert "left out: 1 kernels of libraries without an operator that is known" in printed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["empty.json", "--gpu", "A100"], "is not a Chrome trace in JSON"),
        (["none.json", "--gpu", "A100"], "has no kernels"),
        (["missing.json", "--gpu", "A100"], "missing.json"),
        (["v100.json", "--gpu", "A100"], f"is a trace of a Tesla V100-PCIE-32GB, not of a {A100}"),
        (["v100.json", "--gpu", "A1000"], "unknown GPU type 'A1000'"),
        (["steps.csv", "v100.json", "--gpu", "A100"], "a CSV of step times is imported by itself"),
        (["steps.csv", "--gpu", "A100"], "must have the columns"),
    ],
)
def test_wrong_input_is_one_line_and_writes_nothing(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.json").write_bytes(b"")
    Path("none.json").write_text('{"traceEvents": []}', encoding="utf-8")
    Path("steps.csv").write_text("trace\n", encoding="utf-8")
    profiler_trace(Path("v100.json"), 2.0, "Tesla V100-PCIE-32GB")
    assert main(["profile", "import-trace", *words, "--out", "mine.estimator"]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not Path("mine.estimator").exists()


def test_a_file_that_is_no_estimator_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, trace = tmp_path / "other.json", profiler_trace(tmp_path / "trace.json", 2.0)
    out.write_text("{}", encoding="utf-8")
    assert main(["profile", "import-trace", str(trace), "--gpu", "A100", "--out", str(out)]) == 2
    assert "is not an estimator" in capsys.readouterr().err
    assert out.read_text(encoding="utf-8") == "{}"


def test_without_scikit_learn_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    trace = profiler_trace(tmp_path / "trace.json", 2.0)
    assert main(["profile", "import-trace", str(trace), "--gpu", "A100", "--out", str(tmp_path / "out")]) == 2
    assert "pip install 'emugpu[learning]'" in capsys.readouterr().err


def test_predict_uses_the_published_estimator(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("emugpu.prediction.predict.read_trace", lambda folder: a_trace(4096))
    assert (
        main(["predict", "trace", "--gpu", "K80", "--gpu", "A100", "--estimator", "published", "--format", "json"]) == 0
    )
    for found in json.loads(capsys.readouterr().out):
        assert list(found["ranks"][0]["estimated_seconds_by_source"]) == ["learned"]


def test_predict_refuses_another_type_and_a_broken_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("emugpu.prediction.predict.read_trace", lambda folder: a_trace(512))
    out, trace = tmp_path / "a100.estimator", profiler_trace(tmp_path / "trace.json", 2.0)
    assert main(["profile", "import-trace", str(trace), "--gpu", "A100", "--out", str(out)]) == 0
    capsys.readouterr()
    assert main(["predict", str(tmp_path), "--gpu", "V100", "--estimator", str(out)]) == 2
    assert f"was trained on {A100}, not on {V100}" in capsys.readouterr().err
    out.write_bytes(out.read_bytes()[:-100])
    assert main(["predict", str(tmp_path), "--gpu", "A100", "--estimator", str(out)]) == 2
    assert "isn't JSON, or is cut off" in capsys.readouterr().err
