"""Pollux's search: a genetic algorithm over how many GPUs of each node each job gets.

Qiao et al., OSDI 2021, section 4.2; operators and constants as in petuum/adaptdl, branch osdi21-artifact at c793c70,
simulator (module pollux). Differences: the population is chosen by fitness alone, where NSGA-II also keeps plans with a higher
utilisation, from which the fittest is taken in the end; and `equal` divides a job's GPUs equally over its nodes, because
tasks of a job are equal in emugpu.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int16]
"""Plans: GPUs by plan, job and node."""

_RESET, _CLEAR, _CLEARED = 0.1, 0.1, 0.1
_EPSILON = 1e-3


@dataclass(frozen=True)
class Search:
    """What is searched. Jobs in order of priority: where two want the same GPUs, or are both spread over a node, the first wins.

    `speedups[job, nodes, gpus]`: relative to a fair share of the cluster; 0 where the job can't run. `capacity`: GPUs of each
    node. `present`: the plan in force, jobs x nodes. `most_gpus`, `most_nodes`: of each job. `restart`: factor of a job's
    speed-up that its restart leaves. `scale`: multiplies all speed-ups, so that a node's part of the cluster counts 1.
    """

    speedups: Floats
    capacity: NDArray[np.int64]
    present: Counts
    most_gpus: NDArray[np.int64]
    most_nodes: NDArray[np.int64]
    restart: Floats
    scale: float
    equal: bool = True

    def fitness(self, plans: Counts) -> Floats:
        """The harmonic mean of the jobs' speed-ups, those of restarted jobs reduced; larger is better."""
        by_plan = _last(plans)
        nodes = (by_plan > 0).sum(axis=1, dtype=np.int16)
        gpus = by_plan.sum(axis=1, dtype=np.int16)
        moved = (by_plan != self.present[:, :, None]).any(axis=1)
        speedup = self.speedups[np.arange(plans.shape[1])[:, None], nodes, gpus] * self.scale
        speedup = np.where(moved, speedup * self.restart[:, None], speedup)
        terms = np.ascontiguousarray((1 / (speedup + _EPSILON)).T)
        return np.asarray(plans.shape[1] / terms.sum(axis=1))


def search(problem: Search, first: Counts, random: np.random.Generator, size: int, generations: int) -> Counts:
    """The last population of `size` plans, the fittest first; `first` are plans to begin with."""
    plans = _repaired(problem, np.concatenate([problem.present[None], first]).astype(np.int16), random)
    plans = np.concatenate([plans, _mutated(problem, plans[random.integers(len(plans), size=size)], random)])
    plans = _repaired(problem, plans, random)
    plans, fitness = _fittest(plans, problem.fitness(plans), size)
    for _ in range(generations):
        parents = _tournament(fitness, 2 * ((size + 1) // 2), random)
        children = _repaired(problem, _mutated(problem, _crossed(plans, parents, random), random), random)
        merged = np.concatenate([plans, children])
        plans, fitness = _fittest(merged, np.concatenate([fitness, problem.fitness(children)]), size)
    return plans


def _last(plans: Counts) -> Counts:
    """Plans by job, node and plan: NumPy adds up over jobs or nodes several times as fast if neither is the last axis."""
    return np.ascontiguousarray(plans.transpose(1, 2, 0))


def _fittest(plans: Counts, fitness: Floats, size: int) -> tuple[Counts, Floats]:
    """The `size` fittest plans, each once, with their fitness; ties: the earlier one."""
    seen: set[bytes] = set()
    chosen: list[int] = []
    for index in np.argsort(-fitness, kind="stable").tolist():
        plan = plans[index].tobytes()
        if plan not in seen:
            seen.add(plan)
            chosen.append(index)
            if len(chosen) == size:
                break
    return plans[chosen], fitness[chosen]


def _tournament(fitness: Floats, count: int, random: np.random.Generator) -> NDArray[np.int64]:
    """The fitter one of two drawn plans, `count` times."""
    pairs = random.integers(len(fitness), size=(2, count))
    return np.asarray(np.where(fitness[pairs[0]] >= fitness[pairs[1]], pairs[0], pairs[1]))


def _crossed(plans: Counts, parents: NDArray[np.int64], random: np.random.Generator) -> Counts:
    """Pairs of parents exchange the jobs before a drawn one."""
    one, other = parents[0::2, None], parents[1::2, None]
    jobs = np.arange(plans.shape[1])
    before = jobs < random.integers(len(jobs), size=one.shape)
    source = np.concatenate([np.where(before, other, one), np.where(before, one, other)])
    return np.asarray(plans[source, jobs])


def _mutated(problem: Search, plans: Counts, random: np.random.Generator) -> Counts:
    """10% of jobs go back to the plan in force, 10% lose parts, and where GPUs are free some get another number. In place."""
    count, jobs = plans.shape[:2]
    reset = np.nonzero(random.random((count, jobs)) < _RESET)
    plans[reset] = problem.present[reset[1]]
    losing = np.nonzero(random.random((count, jobs)) < _CLEAR)
    parts = plans[losing]
    parts[random.random(parts.shape, dtype=np.float32) < _CLEARED] = 0
    plans[losing] = parts
    by_plan = _last(plans)
    free = (by_plan.sum(axis=0, dtype=np.int16) < problem.capacity[:, None]).T  # count x nodes
    any_job = free / jobs
    own = free / np.maximum((by_plan > 0).sum(axis=0, dtype=np.int16).T, 1)
    odds = np.where(plans > 0, (any_job + own - any_job * own)[:, None, :], any_job[:, None, :])
    where = np.flatnonzero(random.random(plans.shape, dtype=np.float32) < odds)
    flat = plans.reshape(-1)
    flat[where] = random.integers(flat[where], problem.capacity[where % plans.shape[2]] + 1)
    return plans


def _repaired(problem: Search, plans: Counts, random: np.random.Generator) -> Counts:
    """Plans that can be carried out: one spread job on a node at most, the jobs' limits, the nodes' GPUs."""
    by_plan = _last(plans)
    busy = by_plan > 0
    on_node = busy & (busy.sum(axis=1, dtype=np.int16) > 1)[:, None, :]
    taken = np.zeros_like(on_node[0])
    for job, spread in zip(by_plan, on_node, strict=True):
        job[taken & spread] = 0
        taken |= spread
    _limit(problem, by_plan, random)
    free = np.repeat(problem.capacity.astype(np.int16)[:, None], len(plans), axis=1)
    for job in by_plan:
        np.minimum(job, free, out=job)
        free -= job
    if problem.equal:
        _equalise(by_plan)
    return np.ascontiguousarray(by_plan.transpose(2, 0, 1))


def _limit(problem: Search, by_plan: Counts, random: np.random.Generator) -> None:
    """Takes GPUs from jobs that have too many, or too many nodes, on nodes in a drawn order."""
    gpus, nodes = by_plan.sum(axis=1, dtype=np.int32), (by_plan > 0).sum(axis=1, dtype=np.int16)
    exceeded = (gpus > problem.most_gpus[:, None]) | (nodes > problem.most_nodes[:, None])
    plan, job = np.nonzero(exceeded.T)
    if not len(plan):
        return
    rows = by_plan[job, :, plan]
    order = np.argsort(random.random(rows.shape), axis=1)
    rows = np.take_along_axis(rows, order, axis=1)
    rows = np.minimum(rows.cumsum(axis=1), problem.most_gpus[job][:, None])
    rows = np.diff(rows, axis=1, prepend=0)
    rows[(rows > 0).cumsum(axis=1) > problem.most_nodes[job][:, None]] = 0
    by_plan[job, :, plan] = np.take_along_axis(rows, np.argsort(order, axis=1), axis=1)


def _equalise(by_plan: Counts) -> None:
    """A spread job gets on each of its nodes as many GPUs as on the node where it has the fewest."""
    job, plan = np.nonzero((by_plan > 0).sum(axis=1, dtype=np.int16) > 1)
    rows = by_plan[job, :, plan]
    fewest = np.where(rows > 0, rows, np.iinfo(np.int16).max).min(axis=1, initial=np.iinfo(np.int16).max)
    by_plan[job, :, plan] = np.where(rows > 0, fewest[:, None], 0)
