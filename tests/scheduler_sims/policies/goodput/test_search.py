"""The arithmetic of Pollux and Sia: speeds and their fit, the genetic search, the integer program."""

from __future__ import annotations

from itertools import product
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_sims.policies.goodput.genetic import Search, search
from scheduler_sims.policies.goodput.programs import Choice, choose
from scheduler_sims.policies.goodput.speeds import Batches, Observation, Speeds, best, efficiency, fit

SPEEDS = Speeds(0.1, 0.01, 0.05, 0.002, 0.02, 0.001, 2.0)
SLOWER = Speeds(0.3, 0.004, 0.2, 0.01, 0.05, 0.003, 1.5)


def step_s(nodes, gpus, each, accumulated=0, speeds=SPEEDS):
    return float(speeds.step_s(*(np.array([float(v)]) for v in (nodes, gpus, each, accumulated)))[0])


# ---- speeds


def test_a_step_joins_computation_and_exchange_by_the_overlap():
    assert step_s(1, 1, 10) == pytest.approx(0.2)
    assert step_s(1, 4, 10) == pytest.approx((0.2**2 + (0.02 + 2 * 0.001) ** 2) ** 0.5)
    assert step_s(2, 4, 10) == pytest.approx((0.2**2 + (0.05 + 2 * 0.002) ** 2) ** 0.5)
    assert step_s(2, 4, 10, accumulated=3) == pytest.approx(3 * 0.2 + step_s(2, 4, 10))


def test_a_larger_batch_is_worth_less_by_its_noise_scale():
    batches = Batches(100, 1000, 1, 1000)
    assert efficiency(batches, 300, np.array([100.0, 500.0])) == pytest.approx([1, 0.5])
    assert efficiency(batches, inf, np.array([100.0, 500.0])) == pytest.approx([1, 1])


def test_the_best_batch_grows_with_the_noise_scale_and_keeps_its_limits():
    one = np.ones(1)
    sizes = [best(SPEEDS, Batches(32, 1024, 1, 256), noise, one, 4 * one) for noise in (10.0, 1000.0, inf)]
    assert [int(found.each[0]) for found in sizes] == sorted(int(found.each[0]) for found in sizes)
    assert sizes[0].each[0] < sizes[2].each[0] == 256
    assert best(SPEEDS, Batches(32, 32, 1, 4), inf, one, 4 * one).goodput[0] == 0  # 8 samples on each don't fit
    split = best(SPEEDS, Batches(32, 32, 1, 4, accumulate=True), inf, one, 4 * one)
    assert (split.each[0], split.accumulated[0]) == (4, 1)
    assert split.goodput[0] == pytest.approx(32 / step_s(1, 4, 4, 1))


def test_a_batch_has_at_least_one_sample_on_each_gpu():
    assert best(SPEEDS, Batches(2, 2, 1, 2), inf, np.ones(1), np.full(1, 4.0)).goodput[0] == 0


def test_the_fit_finds_the_parameters_of_steps_that_follow_the_model():
    observed = [
        Observation(nodes, gpus, each, step_s(nodes, gpus, each, speeds=SLOWER), 0.3 + 0.004 * each)
        for nodes, gpus, each in ((1, 1, 8), (1, 1, 64), (1, 2, 8), (1, 4, 64), (2, 4, 8), (2, 8, 64), (4, 16, 16))
    ]
    found = fit(observed)
    for known in observed:
        predicted = step_s(known.nodes, known.gpus, known.each, speeds=found)
        assert predicted == pytest.approx(known.step_s, rel=0.02)


def test_what_was_never_seen_costs_nothing():
    found = fit([Observation(1, 1, 8, 0.18, 0.18)])
    assert step_s(1, 1, 8, speeds=found) == pytest.approx(0.18, rel=1e-3)
    assert step_s(4, 16, 8, speeds=found) == pytest.approx(0.18, rel=1e-3)
    assert found.compute_s == pytest.approx(0.09)


def test_an_exchange_between_nodes_is_not_expected_to_be_faster_than_within_one():
    found = fit([Observation(1, 1, 8, 0.18, 0.18), Observation(1, 4, 8, 0.28, 0.18), Observation(1, 3, 16, 0.4, 0.26)])
    assert found.between_s >= 1.1 * found.within_s
    assert step_s(2, 4, 8, speeds=found) >= step_s(1, 4, 8, speeds=found)


# ---- the genetic search


def problem(jobs=3, nodes=2, gpus=4, power=0.9, **changes):
    numbers = np.arange(nodes * gpus + 1.0)
    table = np.tile(numbers**power, (jobs, nodes + 1, 1)) / (nodes * gpus / jobs)
    fields = {
        "speedups": table,
        "capacity": np.full(nodes, gpus),
        "present": np.zeros((jobs, nodes), dtype=np.int16),
        "most_gpus": np.full(jobs, nodes * gpus),
        "most_nodes": np.full(jobs, nodes),
        "restart": np.ones(jobs),
        "scale": 1 / gpus,
    }
    return Search(**(fields | changes))


def found(of, seed=0, size=40, generations=40):
    none = np.zeros((0, *of.present.shape), dtype=np.int16)
    return search(of, none, np.random.default_rng(seed), size, generations)


def test_equal_jobs_get_equal_parts():
    assert sorted(found(problem(jobs=2))[0].sum(axis=1)) == [4, 4]
    assert sorted(found(problem(jobs=8), size=100, generations=100)[0].sum(axis=1)) == [1] * 8


def test_the_fittest_plan_is_the_best_of_all_for_a_small_cluster():
    small = problem(jobs=2, nodes=2, gpus=2, power=0.5, most_gpus=np.array([3, 4]))
    plans = [np.array(p, dtype=np.int16).reshape(2, 2) for p in product(range(3), repeat=4)]
    able = [
        p
        for p in plans
        if (p.sum(axis=0) <= 2).all()
        and (p.sum(axis=1) <= small.most_gpus).all()
        and not ((p > 0).all(axis=1).sum() > 1)
        and all(len(set(row[row > 0])) <= 1 for row in p)
    ]
    most = max(float(small.fitness(p[None])[0]) for p in able)
    assert float(small.fitness(found(small)[:1])[0]) == pytest.approx(most)


def test_a_job_that_would_restart_for_little_stays():
    present = np.array([[4, 0], [0, 3]], dtype=np.int16)
    stays = found(problem(jobs=2, present=present, restart=np.array([0.1, 0.1])))[0]
    assert stays.tolist() == present.tolist()
    assert found(problem(jobs=2, present=present))[0].sum() == 8


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_plans_fit_the_cluster_and_the_jobs(data):
    jobs, nodes = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
    capacity = np.array(data.draw(st.lists(st.integers(1, 4), min_size=nodes, max_size=nodes)))
    drawn = problem(
        jobs,
        nodes,
        4,
        capacity=capacity,
        most_gpus=np.array(data.draw(st.lists(st.integers(1, 16), min_size=jobs, max_size=jobs))),
        most_nodes=np.array(data.draw(st.lists(st.integers(1, 4), min_size=jobs, max_size=jobs))),
    )
    seed = data.draw(st.integers(0, 99))
    plans = found(drawn, seed, size=12, generations=6)
    assert (plans >= 0).all()
    assert (plans.sum(axis=1) <= capacity).all()
    assert (plans.sum(axis=2) <= drawn.most_gpus).all()
    busy = plans > 0
    assert (busy.sum(axis=2) <= drawn.most_nodes).all()
    assert ((busy & (busy.sum(axis=2, keepdims=True) > 1)).sum(axis=1) <= 1).all()  # one spread job on a node
    assert all(len(set(row[row > 0])) <= 1 for plan in plans for row in plan)
    assert (np.diff(drawn.fitness(plans)) <= 0).all()
    assert (found(drawn, seed, size=12, generations=6) == plans).all()


# ---- the integer program


def test_with_a_high_penalty_all_jobs_run_before_one_gets_more():
    choices = [Choice(job, gpus**-0.25, 0, gpus) for job in range(4) for gpus in (1, 2, 4)]
    picked = [choices[index] for index in choose(choices, 4, [4], 3.0)]
    assert [(choice.job, choice.gpus) for choice in picked] == [(job, 1) for job in range(4)]
    # Sia's penalty is low: 2 * (2^-0.25 - 1.1) is less than 4 * (1 - 1.1).
    assert [choices[index].gpus for index in choose(choices, 4, [4], 1.1)] == [2, 2]


def test_a_job_waits_if_it_costs_more_than_the_penalty():
    assert choose([Choice(0, 2.0, 0, 1)], 1, [1], 1.1) == []
    assert choose([Choice(0, 2.0, 0, 1)], 1, [1], 3.0) == [0]
    assert choose([], 1, [1], 3.0) == []


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_the_choice_fits_and_is_the_best_of_all(data):
    jobs = data.draw(st.integers(1, 3))
    choices = [
        Choice(job, data.draw(st.integers(1, 300)) / 100, kind, gpus)
        for job in range(jobs)
        for kind in (0, 1)
        for gpus in (1, 2)
    ]
    capacity = [data.draw(st.integers(0, 3)) for _ in (0, 1)]
    picked = [choices[index] for index in choose(choices, jobs, capacity, 1.1)]

    def fits(some):
        return all(sum(c.gpus for c in some if c.gpu_type == kind) <= capacity[kind] for kind in (0, 1))

    options = [[None, *(c for c in choices if c.job == job)] for job in range(jobs)]
    every = ([c for c in combination if c] for combination in product(*options))
    value = lambda some: sum(c.cost - 1.1 for c in some)  # noqa: E731
    assert fits(picked) and len({c.job for c in picked}) == len(picked)
    assert value(picked) == pytest.approx(min(value(some) for some in every if fits(some)), abs=1e-3)
