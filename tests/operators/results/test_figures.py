from __future__ import annotations

import pytest

from operators.results.figures import contention, finish_time_fairness, slowdown


def test_slowdown_of_a_job_that_waited_as_long_as_it_ran():
    assert slowdown(20, 10) == 2


def test_contention_is_the_mean_number_of_jobs_during_the_stay():
    assert contention((0, 10), []) == 1
    assert contention((0, 10), [(0, 10), (5, 30), (10, 20)]) == 2.5
    assert contention((5, 5), [(0, 10)]) == 1


@pytest.mark.parametrize(
    ("jct_s", "gpus", "cluster_gpus", "contenders", "rho"),
    [
        (10, 1, 8, 4, 1.0),  # its share is larger than it can use: alone is what it's owed
        (30, 4, 8, 4, 1.5),  # owed 2 of its 4 GPUs: 20 s
        (20, 4, 8, 4, 1.0),
        (15, 4, 8, 4, 0.75),
        (12, 0, 8, 100, 1.2),  # a CPU job contends for no GPU
    ],
)
def test_finish_time_fairness(jct_s, gpus, cluster_gpus, contenders, rho):
    assert finish_time_fairness(jct_s, 10, gpus, cluster_gpus, contenders) == pytest.approx(rho)
