"""Response times of M/M/c: known values, limits, and a simulation of single requests."""

from __future__ import annotations

from heapq import heappop, heappush
from math import exp
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_sims.services.queue import answered_within, waiting_probability


@pytest.mark.parametrize(
    ("load", "replicas", "probability"),
    [(0.5, 1, 0.5), (1.0, 2, 1 / 3), (2.0, 3, 4 / 9), (8.0, 10, 0.409180), (0.0, 4, 0.0), (3.0, 3, 1.0), (5.0, 3, 1.0)],
)
def test_erlang_c(load, replicas, probability):
    assert waiting_probability(load, replicas) == pytest.approx(probability, abs=5e-6)


def test_one_replica_is_the_m_m_1_queue():
    """Response times of M/M/1 are exponential with rate mu - lambda."""
    assert answered_within(3.0, 0.5, 1.0, 1) == pytest.approx(1 - exp(-(1 - 0.5) * 3.0))


def test_too_few_replicas_answer_nothing_in_time_in_the_long_run():
    assert answered_within(10.0, 4.0, 0.5, 2) == answered_within(10.0, 4.0, 0.5, 0) == 0.0


@pytest.mark.parametrize(("per_s", "replicas", "slo_s"), [(6.0, 5, 1.5), (14.0, 8, 1.0), (2.0, 2, 0.5)])
def test_single_requests_are_answered_as_often(per_s, replicas, slo_s):
    random, service_s, at_s, in_time, number = Random(f"{per_s}/{replicas}"), 0.5, 0.0, 0, 200_000
    free_s: list[float] = []
    for _ in range(replicas):
        heappush(free_s, 0.0)
    for _ in range(number):
        at_s += random.expovariate(per_s)
        end_s = max(at_s, heappop(free_s)) + random.expovariate(1 / service_s)
        heappush(free_s, end_s)
        in_time += end_s - at_s <= slo_s
    assert in_time / number == pytest.approx(answered_within(slo_s, per_s, service_s, replicas), abs=0.01)


@given(st.floats(0.01, 100), st.floats(0.001, 10), st.integers(1, 200), st.floats(0.001, 100), st.floats(0.001, 100))
def test_it_is_a_share_that_grows_with_replicas_and_time(per_s, service_s, replicas, one_s, other_s):
    shorter_s, longer_s = sorted((one_s, other_s))
    share = answered_within(shorter_s, per_s, service_s, replicas)
    assert -1e-9 <= share <= 1 + 1e-9
    assert answered_within(longer_s, per_s, service_s, replicas) >= share - 1e-9
    assert answered_within(shorter_s, per_s, service_s, replicas + 1) >= share - 1e-9


def test_equal_rates_are_no_division_by_zero():
    """Two replicas with a load of 1 drain as fast as one serves."""
    beside = [answered_within(1.0, per_s, 1.0, 2) for per_s in (1 - 1e-6, 1.0, 1 + 1e-6)]
    assert beside[0] == pytest.approx(beside[1], abs=1e-5) == pytest.approx(beside[2], abs=1e-5)
