"""Examples in the README and the guides work as they are printed: policies run, example files can be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from emugpu.__main__ import main
from scheduler_sims.inputs.cluster_file import load_cluster
from scheduler_sims.inputs.workload import load_workload

ROOT = Path(__file__).parents[2]


def block(guide: str, start: str) -> str:
    """The fenced block of this guide that begins with `start`."""
    for text in re.findall(r"```\w*\n(.*?)```", (ROOT / guide).read_text(encoding="utf-8"), re.DOTALL):
        if text.startswith(start):
            return str(text)
    raise AssertionError(f"{guide} has no block that begins with {start!r}")


@pytest.mark.parametrize(
    ("guide", "policy"), [("README.md", "ShortestFirst"), ("docs/policies.md", "MyPolicy:patience_s=20")]
)
def test_policies_run_as_printed(guide: str, policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    template = block(guide, "from scheduler_sims.interface.plan")
    assert len(template.splitlines()) <= 30
    (tmp_path / "my_policy.py").write_text(template)
    example = ROOT / "examples" / "allox-40"
    arguments = ["simulate", str(example / "workload.csv"), "--cluster", str(example / "cluster.yaml")]
    assert main([*arguments, "--policy", f"{tmp_path}/my_policy.py:{policy}"]) == 0
    assert policy in capsys.readouterr().out


def test_the_readme_has_at_most_120_lines() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_the_example_files_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text(block("docs/compare.md", "job_id,"))
    (tmp_path / "c.yaml").write_text(block("docs/compare.md", "nodes:"))
    jobs = {job.job_id: job for job in load_workload(tmp_path / "w.csv").jobs}
    assert [c.name for c in jobs["alex-1"].configurations] == ["gpu", "cpu"]
    assert jobs["res-1"].steps == 500
    assert load_cluster(tmp_path / "c.yaml").gpus == 32
