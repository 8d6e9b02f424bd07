from __future__ import annotations

import pytest

from scheduler_sims.reports.comparison import compare
from scheduler_sims.reports.files import summary_dict
from scheduler_sims.reports.page.html import render
from scheduler_sims.reports.ranking import Standing, standings


def means(run, job, policy, predicted, *observed):
    """A policy's runs, each of one job with this JCT."""
    simulated = [] if predicted is None else [run([job("a", 0, 0, predicted)], policy=policy)]
    seen = [run([job("a", 0, 0, jct)], policy=policy, cluster="local", repeat=n) for n, jct in enumerate(observed, 1)]
    return [*simulated, *seen]


def test_ratios_are_to_the_first_policy_and_the_shortest_comes_first(run, job):
    runs = [
        *means(run, job, "fifo", 100, 98, 102),
        *means(run, job, "sjf", 80, 75),
        *means(run, job, "default", None, 120),
    ]
    assert standings(compare(runs)) == [
        Standing("fifo", 2, 2, 1.0, 1.0, 0.0),
        Standing("sjf", 1, 1, 0.8, 0.75, pytest.approx(0.05 / 0.75)),
        Standing("default", None, 3, None, 1.2, None),
    ]
    assert summary_dict(compare(runs))["ranking"][1]["observed_ratio"] == 0.75
    assert "policies by mean JCT; the ratio is to that of fifo" in render(runs, compare(runs), {})


def test_equal_policies_share_a_place(run, job):
    runs = [*means(run, job, "a", 10, 10), *means(run, job, "b", 10, 10), *means(run, job, "c", 20, 20)]
    assert [(s.predicted_place, s.observed_place) for s in standings(compare(runs))] == [(1, 1), (1, 1), (3, 3)]


def test_one_policy_has_nobody_beside_it(run, job):
    assert standings(compare(means(run, job, "fifo", 10, 10))) == []


def test_a_first_policy_without_a_finished_job_leaves_ratios_undefined(run, job):
    failed = run([job("a", 0, None, 2, status="failed")], policy="fifo")
    (first, second) = standings(compare([failed, *means(run, job, "sjf", 10)]))
    assert (first.predicted_place, second.predicted_place, second.predicted_ratio) == (None, 1, None)
