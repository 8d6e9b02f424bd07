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
        nodes = np.count_nonzero(plans, axis=2)
        gpus = plans.sum(axis=2, dtype=np.int64)
        speedup = self.speedups[np.arange(plans.shape[1])[None, :], nodes, gpus] * self.scale
        moved = (plans != self.present).any(axis=2)
        speedup = np.where(moved, speedup * self.restart, speedup)
        return np.asarray(plans.shape[1] / (1 / (speedup + _EPSILON)).sum(axis=1))


def search(problem: Search, first: Counts, random: np.random.Generator, size: int, generations: int) -> Counts:
    """The last population of `size` plans, the fittest first; `first` are plans to begin with."""
    plans = _repaired(problem, np.concatenate([problem.present[None], first]).astype(np.int16), random)
    plans = np.concatenate([plans, _mutated(problem, plans[random.integers(len(plans), size=size)], random)])
    plans, fitness = _fittest(problem, _repaired(problem, plans, random), size)
    for _ in range(generations):
        parents = _tournament(fitness, 2 * ((size + 1) // 2), random)
        children = _mutated(problem, _crossed(plans[parents], random), random)
        merged = np.concatenate([plans, _repaired(problem, children, random)])
        plans, fitness = _fittest(problem, merged, size)
    return plans


def _fittest(problem: Search, plans: Counts, size: int) -> tuple[Counts, Floats]:
    """The `size` fittest plans, each once; ties: the earlier one."""
    seen: dict[bytes, int] = {}
    for index, plan in enumerate(plans):
        seen.setdefault(plan.tobytes(), index)
    unique = plans[list(seen.values())]
    fitness = problem.fitness(unique)
    order = np.argsort(-fitness, kind="stable")[:size]
    return unique[order], fitness[order]


def _tournament(fitness: Floats, count: int, random: np.random.Generator) -> NDArray[np.int64]:
    """The fitter one of two drawn plans, `count` times."""
    pairs = random.integers(len(fitness), size=(2, count))
    return np.asarray(np.where(fitness[pairs[0]] >= fitness[pairs[1]], pairs[0], pairs[1]))


def _crossed(parents: Counts, random: np.random.Generator) -> Counts:
    """Pairs exchange the jobs before a drawn one."""
    one, other = parents[0::2], parents[1::2]
    points = random.integers(parents.shape[1], size=len(one))
    before = (np.arange(parents.shape[1])[None, :] < points[:, None])[:, :, None]
    return np.concatenate([np.where(before, other, one), np.where(before, one, other)])


def _mutated(problem: Search, plans: Counts, random: np.random.Generator) -> Counts:
    """10% of jobs go back to the plan in force, 10% lose parts, and where GPUs are free some get another number."""
    count, jobs = plans.shape[:2]
    plans = np.where((random.random((count, jobs)) < _RESET)[:, :, None], problem.present, plans)
    losing = np.nonzero(random.random((count, jobs)) < _CLEAR)
    parts = plans[losing]
    parts[random.random(parts.shape, dtype=np.float32) < _CLEARED] = 0
    plans[losing] = parts
    free = plans.sum(axis=1, dtype=np.int16) < problem.capacity  # count x nodes
    used = (plans > 0) & free[:, None, :]
    any_job = free / jobs
    own = free / np.maximum(used.sum(axis=1), 1)
    odds = np.where(used, (any_job + own - any_job * own)[:, None, :], any_job[:, None, :])
    where = np.nonzero(random.random(plans.shape, dtype=np.float32) < odds)
    plans[where] = random.integers(plans[where], problem.capacity[where[2]] + 1)
    return plans


def _repaired(problem: Search, plans: Counts, random: np.random.Generator) -> Counts:
    """Plans that can be carried out: one spread job on a node at most, the jobs' limits, the nodes' GPUs."""
    plans = plans.copy()
    busy = plans > 0
    spread = busy.sum(axis=2) > 1
    on_node = busy & spread[:, :, None]
    plans[(on_node.cumsum(axis=1, dtype=np.int16) > 1) & on_node] = 0
    _limit(problem, plans, random)
    taken = np.minimum(plans.cumsum(axis=1, dtype=np.int16), problem.capacity.astype(np.int16))
    plans = np.diff(taken, axis=1, prepend=np.zeros_like(taken[:, :1]))
    if problem.equal:
        _equalise(plans)
    return plans


def _limit(problem: Search, plans: Counts, random: np.random.Generator) -> None:
    """Takes GPUs from jobs that have too many, or too many nodes, on nodes in a drawn order."""
    gpus, nodes = plans.sum(axis=2), np.count_nonzero(plans, axis=2)
    where = np.nonzero((gpus > problem.most_gpus) | (nodes > problem.most_nodes))
    if not len(where[0]):
        return
    rows = plans[where]
    order = np.argsort(random.random(rows.shape), axis=1)
    rows = np.take_along_axis(rows, order, axis=1)
    rows = np.minimum(rows.cumsum(axis=1), problem.most_gpus[where[1]][:, None])
    rows = np.diff(rows, axis=1, prepend=0)
    rows[(rows > 0).cumsum(axis=1) > problem.most_nodes[where[1]][:, None]] = 0
    plans[where] = np.take_along_axis(rows, np.argsort(order, axis=1), axis=1)


def _equalise(plans: Counts) -> None:
    """A spread job gets on each of its nodes as many GPUs as on the node where it has the fewest."""
    where = np.nonzero(np.count_nonzero(plans, axis=2) > 1)
    rows = plans[where]
    fewest = np.where(rows > 0, rows, np.iinfo(np.int16).max).min(axis=1, initial=np.iinfo(np.int16).max)
    plans[where] = np.where(rows > 0, fewest[:, None], 0)
