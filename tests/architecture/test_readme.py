"""The README's promises that a test can keep: its policy runs as it stands, its example files can be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from emugpu.__main__ import main
from scheduler_sims.inputs.cluster_file import load_cluster
from scheduler_sims.inputs.workload import load_workload

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(start: str) -> str:
    """The fenced block of the README that begins with `start`."""
    for text in re.findall(r"```\w*\n(.*?)```", README, re.DOTALL):
        if text.startswith(start):
            return str(text)
    raise AssertionError(f"the README has no block that begins with {start!r}")


def test_the_policy_template_runs_as_it_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    template = block("from scheduler_sims.interface.plan")
    assert len(template.splitlines()) <= 30
    (tmp_path / "my_policy.py").write_text(template)
    example = ROOT / "examples" / "allox-40"
    policy = f"{tmp_path}/my_policy.py:MyPolicy:patience_s=20"
    arguments = ["simulate", str(example / "workload.csv"), "--cluster", str(example / "cluster.yaml")]
    assert main([*arguments, "--policy", policy]) == 0
    assert "MyPolicy:patience_s=20" in capsys.readouterr().out


def test_the_example_files_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text(block("job_id,"))
    (tmp_path / "c.yaml").write_text(block("nodes:"))
    jobs = {job.job_id: job for job in load_workload(tmp_path / "w.csv").jobs}
    assert [c.name for c in jobs["alex-1"].configurations] == ["gpu", "cpu"]
    assert jobs["res-1"].steps == 500
    assert load_cluster(tmp_path / "c.yaml").gpus == 32
