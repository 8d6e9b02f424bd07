"""`emugpu workload generate` and `change` as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emugpu.__main__ import main
from scheduler_sims.inputs.workload import load_workload


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "c.yaml").write_text("nodes: [{name: n, count: 4, gpus: 8, gpu_type: T4, cpus: 64}]")
    (tmp_path / "w.csv").write_text(
        "# kept\njob_id,submit_s,gpu_duration_s,model,batch_size,steps\n"
        '"x, 1",172800,,resnet50,64,9\n\nb,0,50,,,\nc,86400,60,,,\nd,90000,7,,,\n'
    )
    return tmp_path


def workload(folder: Path, *arguments: str) -> int:
    return main(["workload", arguments[0], *arguments[1:], "--out", str(folder / "out.csv")])


def load_of(path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> float:
    capsys.readouterr()
    assert main(["workload", "describe", str(path), "--cluster", str(folder / "c.yaml"), "--json"]) == 0
    return float(json.loads(capsys.readouterr().out)["load"])


def test_generate_by_seed_and_load(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for seed in ("3", "3", "4"):
        arguments = ("--jobs", "500", "--seed", seed, "--load", "0.7", "--cluster", str(folder / "c.yaml"))
        assert workload(folder, "generate", *arguments) == 0
        texts.append((folder / "out.csv").read_text())
    assert texts[0] == texts[1] != texts[2]
    assert load_of(folder / "out.csv", folder, capsys) == pytest.approx(0.7, rel=0.2)


def test_generate_at_a_rate(folder: Path) -> None:
    assert (
        workload(folder, "generate", "--jobs", "2000", "--rate", "120", "--kind", "diurnal/uniform", "--users", "3")
        == 0
    )
    jobs = load_workload(folder / "out.csv").jobs
    assert jobs[-1].submit_s / 3600 == pytest.approx(2000 / 120, rel=0.25)  # within one day, whose hours differ
    assert {job.user for job in jobs} == {"user-0", "user-1", "user-2"}


def test_change_keeps_columns_and_comments(folder: Path) -> None:
    assert workload(folder, "change", str(folder / "w.csv"), "--after", "1", "--faster", "2") == 0
    assert (folder / "out.csv").read_text().splitlines() == [
        "# kept",
        "job_id,submit_s,gpu_duration_s,model,batch_size,steps",
        "c,0,60,,,",
        "d,1800,7,,,",
        '"x, 1",43200,,resnet50,64,9',
    ]


def test_change_of_a_workload_without_times(folder: Path) -> None:
    (folder / "v.csv").write_text("job_id,gpu_duration_s\na,5\nb,6\n")
    assert workload(folder, "change", str(folder / "v.csv"), "--jobs", "1") == 0
    assert (folder / "out.csv").read_text().splitlines()[0] == "job_id,gpu_duration_s,submit_s"
    assert len(load_workload(folder / "out.csv").jobs) == 1


def test_change_to_what_fits(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "v.csv").write_text("job_id,num_gpus,gpu_duration_s\na,8,5\nb,9,6\nc,1,7\n")
    assert workload(folder, "change", str(folder / "v.csv"), "--fitting", str(folder / "c.yaml")) == 0
    assert [job.job_id for job in load_workload(folder / "out.csv").jobs] == ["a", "c"]
    (folder / "v.csv").write_text("job_id,num_gpus,gpu_duration_s\nb,9,6\n")
    assert workload(folder, "change", str(folder / "v.csv"), "--fitting", str(folder / "c.yaml")) == 2
    assert "--fitting: all jobs are larger than that cluster" in capsys.readouterr().err


def test_change_to_a_load(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert workload(folder, "change", str(folder / "w.csv"), "--load", "0.5", "--cluster", str(folder / "c.yaml")) == 0
    assert "4 of 4 jobs" in capsys.readouterr().out
    assert load_of(folder / "out.csv", folder, capsys) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["generate", "--rate", "0"], "--rate: must be above 0, not 0"),
        (["generate", "--load", "0.5"], "--load: needs --cluster"),
        (["generate", "--kind", "x/y"], "--kind: unknown arrivals 'x'"),
        (["generate", "--gpus-per-node", "0"], "--gpus-per-node: must be at least 1"),
        (["change", "W", "--load", "0.5"], "--load: needs --cluster"),
        (["change", "W", "--after", "9"], "--after: and --before leave no job"),
        (["change", "W", "--jobs", "5"], "--jobs: must be 1 to 4"),
        (["change", "W", "--sample", "0"], "--sample: must be above 0"),
        (["change", "W", "--faster", "-1"], "--load: -1 times as many"),
    ],
)
def test_errors(folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str) -> None:
    assert workload(folder, *(str(folder / "w.csv") if each == "W" else each for each in arguments)) == 2
    err = capsys.readouterr().err
    assert problem in err and err.count("\n") == 1
    assert not (folder / "out.csv").exists()
