"""examples/services-2 as it stands: the figures in its README are ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scheduler_sims.experiment import Experiment
from scheduler_sims.reports.metrics import figures

EXAMPLE = Path(__file__).parents[2] / "examples" / "services-2"
ROWS = re.findall(r"^\| ([a-z][^ ]*) \| (\d.*) \|$", (EXAMPLE / "README.md").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize(("policy", "row"), ROWS)
def test_the_figures_of_the_readme(policy, row):
    experiment = Experiment.load(EXAMPLE / "workload.csv", EXAMPLE / "cluster.yaml")
    run = experiment.serving(EXAMPLE / "services.yaml").simulate(policy)
    *shares, mean_s, preemptions = (float(cell.strip(" %")) for cell in row.split("|"))
    assert [100 * level.in_time for level in run.services] == pytest.approx(shares, abs=0.0051)
    found = figures(run)
    assert [found.mean_jct_s, found.preemptions] == pytest.approx([mean_s, preemptions], abs=0.051)
    assert (found.finished, found.failed) == (20, 0)
