"""examples/gangs-24 as it stands: the tables in its README are ours."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from scheduler_sims.experiment import Experiment
from scheduler_sims.reports.metrics import figures

EXAMPLE = Path(__file__).parents[2] / "examples" / "gangs-24"
README = (EXAMPLE / "README.md").read_text(encoding="utf-8")
WORKLOAD = (EXAMPLE / "workload.csv").read_text(encoding="utf-8")
POLICIES = {"FIFO": "fifo", "SRTF": "srtf", "LAS": "las:threshold_s=500,quantum_s=20"}


def cells(policy, table):
    """The row of `policy` in the README's table of that number."""
    rows = re.findall(rf"^\| {policy} \| (.*) \|$", README, re.MULTILINE)
    return [float(cell.strip(" %").replace("−", "-")) for cell in rows[table].split("|")]


def run(policy, workload=EXAMPLE / "workload.csv"):
    return Experiment.load(workload, EXAMPLE / "cluster.yaml").simulate(POLICIES[policy])


@pytest.mark.parametrize("policy", POLICIES)
def test_the_predictions_of_the_readme(policy):
    found = figures(run(policy))
    told = [found.mean_jct_s, found.p95_jct_s, found.makespan_s, 100 * found.utilisation, found.preemptions]
    assert told == pytest.approx(cells(policy, 0), abs=0.051)
    assert (found.finished, found.failed) == (24, 0)


@pytest.mark.parametrize("policy", POLICIES)
def test_wide_jobs_wait_although_enough_gpus_are_free(policy):
    waits = dict.fromkeys(("job-07-1x8", "job-08-1x8", "job-16-1x8"), 0.0)
    record = run(policy)
    moments = sorted({time for s in record.spans for time in (s.start_s, s.end_s)} | {j.submit_s for j in record.jobs})
    for since, until in pairwise(moments):
        held = [span.job_id for span in record.spans if span.start_s <= since and span.end_s >= until]
        for job in record.jobs:
            waiting = job.job_id in waits and job.job_id not in held and job.submit_s <= since and job.finish_s >= until
            if waiting and 32 - len(held) >= 8:
                waits[job.job_id] += until - since
    assert list(waits.values()) == pytest.approx(cells(policy, 1), abs=0.051)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_splitting_the_wide_jobs_would_bring(policy, tmp_path):
    (tmp_path / "split.csv").write_text(WORKLOAD.replace(",8,1,24,", ",8,2,24,"), encoding="utf-8")
    together, split = (figures(run(policy, *file)).mean_jct_s for file in ((), (tmp_path / "split.csv",)))
    assert [together, split, 100 * (split / together - 1)] == pytest.approx(cells(policy, 2), abs=0.051)
