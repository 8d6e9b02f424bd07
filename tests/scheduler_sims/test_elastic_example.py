"""examples/elastic-8 as it stands: the figures in its README, and what its policy does with the GPUs."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from scheduler_sims.experiment import Experiment
from scheduler_sims.reports.metrics import figures

EXAMPLE = Path(__file__).parents[2] / "examples" / "elastic-8"
README = (EXAMPLE / "README.md").read_text(encoding="utf-8")
GROW = f"{EXAMPLE}/grow.py:Grow"


@pytest.fixture(scope="module")
def experiment():
    return Experiment.load(EXAMPLE / "workload.csv", EXAMPLE / "cluster.yaml")


@pytest.mark.parametrize("policy", ["fifo", "srtf", "Grow"])
def test_the_figures_of_the_readme(experiment, policy):
    found = figures(experiment.simulate(GROW if policy == "Grow" else policy))
    mean_s, _, makespan_s, utilisation, stops = (
        float(cell.strip(" %")) for cell in re.search(rf"^\| {policy} \| (.*) \|$", README, re.MULTILINE)[1].split("|")
    )
    stated = [mean_s, makespan_s, utilisation, stops]
    assert [found.mean_jct_s, found.makespan_s, 100 * found.utilisation, found.preemptions] == pytest.approx(
        stated, abs=0.051
    )
    assert (found.finished, found.failed) == (8, 0)


def test_the_observed_mean_jcts_are_within_one_percent():
    rows = re.findall(r"^\| (?:fifo|srtf|Grow) \| ([\d.]+) \| ([\d.]+) \|", README, re.MULTILINE)
    assert len(rows) == 3
    assert all(float(observed) == pytest.approx(float(predicted), rel=0.01) for predicted, observed in rows)


@pytest.mark.parametrize(("patience", "mean_s"), [(0, 273.6), (20, 256.0), (1000, 374.0)])
def test_what_patience_changes(experiment, patience, mean_s):
    assert f"{mean_s:.1f} s" in README
    assert figures(experiment.simulate(f"{GROW}:patience={patience}")).mean_jct_s == pytest.approx(mean_s, abs=0.051)


def test_who_has_how_many_gpus(experiment):
    run = experiment.simulate(GROW)
    spans = Counter((span.job_id, span.start_s, span.end_s) for span in run.spans)
    held = {
        job.job_id: [gpus for (job_id, *_), gpus in sorted(spans.items()) if job_id == job.job_id] for job in run.jobs
    }
    assert held == {
        "resnet50-a": [8, 6, 2, 1, 3, 4],
        "vgg16": [2, 1, 2],
        "mobilenet-a": [4],
        "alexnet": [1],
        "resnet18": [1, 2, 6],
        "resnet50-b": [8, 4],
        "mobilenet-b": [4],
        "resnet50-c": [8],
    }
    assert all(job.queueing_delay_s < 4 for job in run.jobs if job.submit_s <= 120)
    for job in experiment.workload.jobs:
        starts = [(start, gpus) for (job_id, start, _), gpus in spans.items() if job_id == job.job_id]
        assert all(gpus in job.configurations[0].gpu_range for _, gpus in starts)
