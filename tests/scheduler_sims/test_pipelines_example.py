"""examples/pipelines-8 as it stands: the figures in its README."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import fmean

import pytest

from scheduler_sims.experiment import Experiment

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipelines-8"
README = (EXAMPLE / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("policy", "title"), [("fifo", "`fifo`"), (f"{EXAMPLE}/spread.py:Spread", "`Spread`")])
def test_the_table_is_what_the_simulator_predicts(policy, title):
    run = Experiment.load(EXAMPLE / "workload.csv", EXAMPLE / "cluster.yaml")
    jobs = run.simulate(policy).jobs
    fetching, computing = ([job.jct_s for job in jobs if job.job_id.startswith(kind)] for kind in ("images", "text"))
    (line,) = re.findall(rf"^\| {re.escape(title)}:[^|]*\|[^|]*\|(.*)\|$", README, re.MULTILINE)
    stated = [float(cell) for cell in line.split("|")]
    assert stated == pytest.approx([fmean(fetching), fmean(computing), fmean(fetching + computing)], abs=0.06)
