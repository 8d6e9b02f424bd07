"""`emugpu explain` on the folder of a simulation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emugpu.__main__ import main


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    (tmp_path / "w.csv").write_text(
        "job_id,submit_s,num_gpus,gpu_duration_s\nlong,0,1,100\nwide,1,2,10\nsmall,2,1,10\n"
    )
    (tmp_path / "c.yaml").write_text("nodes: [{name: n, gpus: 2, gpu_type: T4, cpus: 8}]")
    command = [
        "simulate",
        str(tmp_path / "w.csv"),
        "--cluster",
        str(tmp_path / "c.yaml"),
        "--out",
        str(tmp_path / "out"),
    ]
    assert main([*command, "--policy", "fifo", "--policy", "sjf"]) == 0
    capsys.readouterr()
    return tmp_path / "out"


def test_each_policys_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(folder), "wide"]) == 0
    out = capsys.readouterr().out
    assert "wide of user, fifo on the simulated cluster: finished" in out
    assert "wide of user, sjf on the simulated cluster: finished" in out
    assert "99.0 s: GPUs were free, but fewer than it needs" in out


def test_one_run_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(folder), "wide", "--policy", "fifo", "--cluster", "simulated", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert (one["job"]["job_id"], one["waited_s"]) == ("wide", 99)
    assert [part["kind"] for part in one["history"]] == ["wait", "stay"]


def test_errors(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, problem in (
        (["widee"], "jobs.csv: unknown job 'widee'; did you mean wide"),
        (["wide", "--policy", "srtf"], "--policy: unknown policy 'srtf'; did you mean sjf"),
        (["wide", "--cluster", "local"], "--cluster: unknown cluster 'local'; known: simulated"),
    ):
        assert main(["explain", str(folder), *arguments]) == 2
        assert problem in capsys.readouterr().err
    (folder / "summary.json").write_text("{}")
    assert main(["explain", str(folder), "wide"]) == 2
    assert "summary.json: is no summary of a run" in capsys.readouterr().err
    (folder / "summary.json").unlink()
    assert main(["explain", str(folder), "wide"]) == 2
    assert main(["explain", str(folder / "none"), "wide"]) == 2
