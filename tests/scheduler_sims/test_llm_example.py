"""examples/llm-12 as it stands: the figures in its README are ours."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from scheduler_sims.experiment import Experiment
from scheduler_sims.reports.metrics import figures

EXAMPLE = Path(__file__).parents[2] / "examples" / "llm-12"
ROWS = re.findall(r"^\| ([a-z][^ ]*) \| (\d.*) \|$", (EXAMPLE / "README.md").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize(("policy", "row"), ROWS)
def test_the_figures_of_the_readme(policy, row):
    experiment = Experiment.load(EXAMPLE / "workload.csv", EXAMPLE / "cluster.yaml")
    run = experiment.simulate(policy)
    found = figures(run)
    mean_s, observed_s, makespan_s, utilisation, stops = (float(cell.strip(" %")) for cell in row.split("|"))
    assert [found.mean_jct_s, found.makespan_s, 100 * found.utilisation, found.preemptions] == pytest.approx(
        [mean_s, makespan_s, utilisation, stops], abs=0.051
    )
    assert (found.finished, found.failed) == (12, 0)
    assert observed_s == pytest.approx(mean_s, rel=0.01)
    tensor = {job.job_id: job.configurations[0].parallelism.tensor for job in experiment.workload.jobs}
    held = Counter((span.job_id, span.node, span.start_s) for span in run.spans)
    assert all(count % tensor[job_id] == 0 for (job_id, *_), count in held.items())  # a layer's GPUs are on one server
