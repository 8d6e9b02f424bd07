"""`emugpu profile from-trace`, from arguments to the file and exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emugpu.__main__ import main
from emulator_runtime.prediction.records import Launch, RankTrace, Trace, Work

A100 = "NVIDIA_A100-SXM4-40GB"


@pytest.fixture(autouse=True)
def traces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace takes as long as its folder's name says."""

    def read(folder: Path) -> Trace:
        work = Work("gemm", 1, flops=1e12 * int(folder.name), precision=4)
        launches = [Launch(0, 0, 0, 0, work) for _ in range(4)]
        return Trace([RankTrace(0, launches, {}, (A100,))])

    monkeypatch.setattr("emugpu.prediction.from_trace.read_trace", read)


def made(*words: str, out: Path) -> int:
    return main(["profile", "from-trace", *words, "--out", str(out)])


def test_a_workload_can_name_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.json"
    assert made("my-model", "32=traces/4", "8=traces/1", "--gpu", "A100", "--gpu", "V100", out=path) == 0
    assert "emugpu profile show my-model --profiles" in capsys.readouterr().out
    workload, cluster = tmp_path / "workload.csv", tmp_path / "cluster.yaml"
    workload.write_text("job_id,submit_s,num_gpus,model,batch_size,steps\na,0,1,my-model,16,100\n", encoding="utf-8")
    cluster.write_text("nodes: [{name: n, gpus: 1, gpu_type: A100, cpus: 8, memory_gib: 64}]\n", encoding="utf-8")
    arguments = ["simulate", str(workload), "--cluster", str(cluster), "--profiles", str(path), "--policy", "fifo"]
    assert main([*arguments, "--out", str(tmp_path / "out")]) == 0


def test_other_models_of_the_file_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    assert made("one", "8=traces/1", out=path) == made("two", "8=traces/1", out=path) == 0
    before = json.loads(path.read_text(encoding="utf-8"))["models"]["two"]
    assert made("one", "8=traces/2", out=path) == 0
    models = json.loads(path.read_text(encoding="utf-8"))["models"]
    assert models["two"] == before != models["one"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["traces/1"], "BATCH=TRACE: must be a batch size and a folder such as 32=out/trace, not traces/1"),
        (["0=traces/1"], "BATCH=TRACE: must be a batch size"),
        (["8="], "BATCH=TRACE: must be a batch size"),
        (["8=traces/1", "8=traces/2"], "BATCH=TRACE: batch size 8 is there twice: traces/1 and traces/2"),
        (["8=traces/1", "--steps", "0"], "--steps: must be at least 1, not 0"),
        (["8=traces/1", "--gpu", "A10000"], "unknown GPU type 'A10000'"),
    ],
)
def test_wrong_arguments_are_one_line_and_write_nothing(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert made("my-model", *words, out=tmp_path / "mine.json") == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not (tmp_path / "mine.json").exists()


def test_a_file_that_has_no_profiles_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"jobs": []}', encoding="utf-8")
    assert made("my-model", "8=traces/1", out=path) == 2
    assert "other.json" in capsys.readouterr().err
    assert path.read_text(encoding="utf-8") == '{"jobs": []}'
