from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.results.status import Stays, finish_time_fairness


def test_contention_is_the_mean_number_of_jobs_during_the_stay():
    assert Stays({"own": (0, 10)}).contention((0, 10)) == 1
    stays = Stays({"own": (0, 10), "a": (0, 10), "b": (5, 30), "c": (10, 20)})
    assert stays.contention((0, 10)) == 2.5
    assert stays.contention((5, 5)) == 1
    stays.put("c", (0, 2**62))
    assert stays.contention((0, 10)) == 3.5
    stays.drop(["c", "a", "never there"])
    assert stays.contention((0, 10)) == 1.5


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted), min_size=1), st.data())
def test_contention_is_the_sum_of_overlaps(stays, data):
    begin, end = data.draw(st.sampled_from(stays))
    shared = sum(max(0, min(end, other_end) - max(begin, other_begin)) for other_begin, other_end in stays)
    expected = shared / (end - begin) if end > begin else 1
    every = Stays({str(number): tuple(stay) for number, stay in enumerate(stays)})
    assert every.contention((begin, end)) == pytest.approx(expected)


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
