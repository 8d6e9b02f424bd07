"""Gavel's objectives: from a Problem to the shares of time of each job on each GPU type.

Narayanan et al., OSDI 2020, section 4, and stanford-futuredata/gavel at c4fa400, scheduler/policies. Where several shares reach
the optimum, HiGHS's vertex is taken, where Gavel takes an inner point of ECOS: the objective is the same, JCTs may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scheduler_sims.policies.gavel.problem import Array, Problem, Shares
from scheduler_sims.policies.gavel.programs import Basis, Program, solve
from scheduler_sims.policies.gavel.queues import allox, fifo

Objective = Callable[[Problem, Any], tuple[Shares, Any]]
"""Shares of a problem, and the memory that the objective gets with the next one (None at first)."""

_PRECISION = 1e-9
"""Relative: a finish-time ratio that improves by less is the optimum."""

_SLACK = 1e-8
"""Water filling: by which part a level that was reached is lowered where it becomes a constraint of the next program."""

_MOST_STEPS = 100
_RAISED = 1e-4
"""Water filling: jobs that can all be raised by this part of the level aren't at their limit (as coded in Gavel: 1.0001)."""


def _fair_gain(problem: Problem) -> Array:
    """Of a share: throughput relative to that of an equal division, times the GPUs, divided by the weight."""
    equal = problem.equal_rates
    return np.asarray(problem.rates * (problem.gpus / problem.weights / np.where(equal > 0, equal, 1.0))[:, None])


def _able(problem: Problem) -> Array:
    """1 for jobs that can run on some type of the cluster, 0 for those that wait for other nodes."""
    return np.asarray((problem.rates @ problem.capacity > 0).astype(np.float64))


def max_min(problem: Problem, memory: Basis | None) -> tuple[Shares, Basis]:
    """Least attained service, generalised: the lowest normalised throughput is as high as possible."""
    solution = solve(problem, Program(_fair_gain(problem), _able(problem)), memory)
    return problem.shares(solution.x), solution.basis


def water_filling(problem: Problem, memory: Basis | None) -> tuple[Shares, Basis]:
    """Max-min fairness, then the lowest throughput of the jobs that aren't at their limit, and so on.

    Gavel finds the jobs at their limit by a MILP. Here an LP lifts all jobs by up to 0.01% of the level at once: those that stay
    below half of that can't be raised.
    """
    gain, demand = _fair_gain(problem), _able(problem)
    floor, basis = np.zeros(len(problem.jobs)), Basis()
    while True:
        solution = solve(problem, Program(gain, demand, floor), basis if basis.common else memory)
        basis = solution.basis
        reached = np.where(demand > 0, solution.level * (1 - _SLACK), floor)
        most_lift = _RAISED * solution.level * demand
        lifted = solve(problem, Program(gain, None, reached, most_lift=most_lift)).lift
        stuck = (demand > 0) & (lifted < most_lift / 2)
        floor = np.where(stuck, reached, floor)
        if solution.level <= 0 or not (demand > 0).any() or not stuck.any() or (demand[~stuck] == 0).all():
            return problem.shares(solution.x), basis
        demand = np.where(stuck, 0.0, demand)


@dataclass(frozen=True, slots=True)
class Isolated:
    """What each job would have had alone: `so_far_s` is the time that its steps until the last solve would have taken."""

    so_far_s: Mapping[str, float] = field(default_factory=dict)
    steps_left: Mapping[str, float] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    basis: Basis | None = None

    def until_now(self, problem: Problem) -> Isolated:
        """With the steps since the last solve, at the isolated rates of that solve."""
        left = dict(zip(problem.jobs, problem.steps_left.tolist(), strict=True))
        so_far = {
            job: self.so_far_s.get(job, 0.0) + (self.steps_left[job] - left[job]) / self.rates[job]
            if job in self.rates and self.rates[job] > 0
            else self.so_far_s.get(job, 0.0)
            for job in problem.jobs
        }
        rates = dict(zip(problem.jobs, problem.isolated_rates.tolist(), strict=True))
        return Isolated(so_far, left, rates, self.basis)


def finish_time(problem: Problem, memory: Isolated | None) -> tuple[Shares, Isolated]:
    """Finish-time fairness (Themis): the largest ratio of a job's JCT to its JCT with an equal part is as small as possible.

    ratio = (age + steps left / throughput) / (isolated time so far + steps left / isolated throughput). For a given ratio the
    throughputs that jobs need follow; an LP finds by how much all of them can be exceeded, which gives a smaller ratio, until
    it can't be.
    """
    known = (memory or Isolated()).until_now(problem)
    able = problem.rates @ problem.capacity > 0
    alone = np.array([known.so_far_s[job] for job in problem.jobs])
    alone = alone + problem.steps_left / np.where(able, problem.isolated_rates, 1.0)
    x, basis = problem.isolated_shares * (problem.rates > 0), known.basis
    ratio = _ratio(problem, x, alone, able)
    for _ in range(_MOST_STEPS):
        needed = np.where(able, problem.steps_left / np.maximum(ratio * alone - problem.age_s, 1e-12), 0.0)
        solution = solve(problem, Program(problem.rates, needed), basis)
        basis = solution.basis
        better = _ratio(problem, solution.x, alone, able)
        if not better < ratio * (1 - _PRECISION):
            break
        x, ratio = solution.x, better
    return problem.shares(x), replace(known, basis=basis)


def _ratio(problem: Problem, x: Array, alone_s: Array, able: NDArray[np.bool_]) -> float:
    """The largest finish-time ratio with the shares `x`."""
    rates = np.where(able, (problem.rates * x).sum(axis=1), 1.0)
    with np.errstate(divide="ignore"):
        ratios = np.where(able, (problem.age_s + problem.steps_left / rates) / alone_s, 0.0)
    return float(ratios.max())


def makespan(problem: Problem, memory: Basis | None) -> tuple[Shares, Basis]:
    """The shares with which the last job ends as early as possible; all end then."""
    solution = solve(problem, Program(problem.rates, problem.steps_left * _able(problem)), memory)
    return problem.shares(solution.x), solution.basis


def throughput(problem: Problem, memory: Basis | None) -> tuple[Shares, Basis]:
    """The largest sum of throughputs; jobs with few steps per second may starve."""
    return cost(replace(problem, prices=np.ones(len(problem.types))), memory)


def cost(problem: Problem, memory: Basis | None) -> tuple[Shares, Basis]:
    """The largest sum of throughputs divided by the prices of GPUs."""
    solution = solve(problem, Program(problem.rates, values=problem.rates / problem.prices[None, :]), memory)
    return problem.shares(solution.x), solution.basis


def isolated(problem: Problem, _memory: None) -> tuple[Shares, None]:
    """An equal division of the cluster, whatever the jobs' speeds."""
    return problem.shares(problem.isolated_shares * (problem.rates > 0)), None


OBJECTIVES: Mapping[str, Objective] = {
    "max-min": max_min,
    "water-filling": water_filling,
    "finish-time": finish_time,
    "makespan": makespan,
    "throughput": throughput,
    "cost": cost,
    "isolated": isolated,
    "fifo": fifo,
    "allox": allox,
}
