"""`emugpu workload import` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emugpu.__main__ import main
from emugpu.workload.import_trace import gpu_name
from scheduler_sims.traces import FORMATS

TRACE = "job_id,num_gpu,submit_time,duration\n0,2,10,164\n1,1,40,60\n2,x,0,1\n"


def test_import_and_simulate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text(TRACE)
    (tmp_path / "c.yaml").write_text("nodes: [{name: n, gpus: 2, gpu_type: T4, cpus: 8}]")
    out = tmp_path / "w.csv"
    assert main(["workload", "import", "tiresias", str(tmp_path / "t.csv"), "--skip-bad", "--out", str(out)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{out}: 2 jobs of Tiresias' simulator",
        f"  bad rows: 1, the first: {tmp_path}/t.csv:4: num_gpu: must be a number of at least 0, not 'x'",
    ]
    assert main(["simulate", str(out), "--cluster", str(tmp_path / "c.yaml"), "--policy", "fifo", "--json"]) == 0
    predicted = json.loads(capsys.readouterr().out)["policies"]["fifo"]["predicted"]
    assert (predicted["makespan_s"], predicted["mean_jct_s"]) == (224, (164 + 194) / 2)


def test_json_and_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text(TRACE)
    trace, out = str(tmp_path / "t.csv"), str(tmp_path / "w.csv")
    assert main(["workload", "import", "tiresias", trace, "--out", out, "--skip-bad", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == 2
    for arguments, problem in (
        (
            ["tiresias", trace],
            "t.csv:4: num_gpu: must be a number of at least 0, not 'x'; correct it, or use --skip-bad",
        ),
        (["tiresias", trace, "--gpus-per-node", "0"], "--gpus-per-node: must be at least 1, not 0"),
        (["tiresias", trace, "--step-s", "0"], "--step-s: must be above 0, not 0"),
        (["pollux", trace], "--durations: is missing"),
    ):
        assert main(["workload", "import", *arguments, "--out", out]) == 2
        error = capsys.readouterr().err
        assert problem in error and error.count("\n") == 1


def test_help_lists_all_formats(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["workload", "import", "--help"])
    out = capsys.readouterr().out
    assert all(one.title in out and one.origin in out for one in FORMATS.values())


def test_gpu_types_by_the_catalogues_names() -> None:
    assert gpu_name("T4") == "Tesla-T4"
    assert gpu_name("V100M32") == "Tesla_V100-PCIE-32GB"
    assert gpu_name("G1") is None
