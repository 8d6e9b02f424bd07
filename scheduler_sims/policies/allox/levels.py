"""The solver of AlloX's matching: a minimum-cost flow of jobs to levels of queues, in place of a matching with single places.

A level is what the k-th places from the end of the queues of all machines of one kind have in common: a job costs k times its
run time at each of them, and the level's n jobs take the n machines that are free first. So 1,000 jobs meet a few dozen levels
instead of thousands of places.

Method: successive shortest paths with prices (Ahuja, Magnanti, Orlin, Network Flows, 1993, sections 9.7 and 14.5). Each level has
a price. Each job takes the level where its cost plus the price is least, and each level the machines that are free before its
price. From a level with more jobs than machines, a job moves to another level, from which another job moves on, and so on, until
a level that has machines left, by the shortest of these paths, after which prices follow. Any first prices lead to the optimum;
the better they are, the fewer and shorter the paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapreplace
from itertools import pairwise, zip_longest
from math import inf
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Number = TypeVar("Number", bound=np.generic)

_ROUNDS = 50
"""Of `_settled_prices`. 1,000 jobs with log-normal run times on two kinds of one machine took 0.62 s in all after 20 rounds, and
0.19 s after 50 and after 100."""


def fill_levels(
    run_s: Sequence[Sequence[float]], ready_s: Sequence[Sequence[float]]
) -> tuple[list[int], list[list[int]]]:
    """The kind of machine of each job, and the number of jobs at each level of each kind, for the least sum of completion times.

    `run_s[kind][job]` is inf where a job can't run, and finite somewhere; `ready_s[kind]` is sorted and not empty.
    """
    times = np.array(run_s)
    starts = _scheduled_prices(times, ready_s), _settled_prices(times, ready_s)
    prices = max(starts, key=lambda prices: _bound_s(times, ready_s, prices))
    while True:
        flow = _Flow(times, ready_s, prices)
        flow.balance()
        # At a level each job costs more than at the one below, so nothing above an unused level is cheaper.
        if not any(jobs[-1] for jobs in flow.jobs()):
            return flow.kind[flow.level].tolist(), [jobs.tolist() for jobs in flow.jobs()]
        prices = [_with_spare_levels(known, ready[0]) for known, ready in zip(flow.prices(), ready_s, strict=True)]


def _scheduled_prices(run_s: Floats, ready_s: Sequence[Sequence[float]]) -> list[Floats]:
    """The prices of levels by a schedule, which is optimal for the jobs of each kind: shortest first, where it ends first."""
    free = [[(ready, machine) for machine, ready in enumerate(of_kind)] for of_kind in ready_s]
    queues: list[list[list[float]]] = [[[] for _ in of_kind] for of_kind in free]
    for times in run_s[:, run_s.min(axis=0).argsort(kind="stable")].T.tolist():
        ends = [heap[0][0] + time for heap, time in zip(free, times, strict=True)]
        kind = ends.index(min(ends))
        machine = free[kind][0][1]
        heapreplace(free[kind], (ends[kind], machine))
        queues[kind][machine].append(times[kind])
    longest = [[max(level) for level in zip_longest(*map(reversed, of_kind), fillvalue=0.0)] for of_kind in queues]
    prices = [_above(np.array(of_kind)) + ready[0] for of_kind, ready in zip(longest, ready_s, strict=True)]
    return [_with_spare_levels(known, ready[0]) for known, ready in zip(prices, ready_s, strict=True)]


def _settled_prices(run_s: Floats, ready_s: Sequence[Sequence[float]]) -> list[Floats]:
    """First prices by iteration, often closer to the best than those of a schedule: jobs choose the kind where they cost least,
    their choices make new prices, and so on.

    The average of all rounds is taken (method of successive averages: Sheffi, Urban Transportation Networks, 1985, section 12.1),
    since jobs that all follow the last round's prices would go to and fro.
    """
    jobs, machines = run_s.shape[1], [len(of_kind) for of_kind in ready_s]
    prices = [np.full(2 + jobs // count, ready[0]) for count, ready in zip(machines, ready_s, strict=True)]
    chosen = np.zeros(len(machines))
    for number in range(_ROUNDS):
        kind = np.array([_cheapest(*both) for both in zip(run_s, prices, strict=True)]).argmin(axis=0)
        weight = 2 / (number + 2)
        chosen += weight * (np.bincount(kind, minlength=len(machines)) - chosen)
        for each, (known, ready) in enumerate(zip(prices, ready_s, strict=True)):
            longest, ranked = np.zeros(len(known)), -np.sort(-run_s[each][kind == each])
            last_places = ranked[:: len(ready)]
            longest[: len(last_places)] = last_places
            known += weight * (_above(longest) + ready[0] - known)
    used = (1 + chosen / machines).astype(int).tolist()
    kinds = zip(prices, used, ready_s, strict=True)
    return [_with_spare_levels(known[:count], ready[0]) for known, count, ready in kinds]


def _cheapest(run_s: Floats, prices: Floats) -> Floats:
    """What each job costs at the level where it costs least: prices fall from level to level, by less and less."""
    levels = np.searchsorted(np.diff(prices), -run_s)
    return (levels + 1) * run_s + prices[levels]


def _above(longest_s: Floats) -> Floats:
    """The prices of levels whose longest jobs take so long, where a machine is free at once.

    The longest job of a level costs as much there as at the level below, price included. So a price is the sum of the longest run
    times of all levels above.
    """
    return longest_s[::-1].cumsum()[::-1] - longest_s


def _bound_s(run_s: Floats, ready_s: Sequence[Sequence[float]], prices: Sequence[Floats]) -> float:
    """The least that all jobs can cost according to the prices (the dual objective): the larger, the better the prices."""
    costs = np.array([_cheapest(*both) for both in zip(run_s, prices, strict=True)]).min(axis=0).sum()
    rents = [np.maximum(0.0, known[:, None] - ready).sum() for known, ready in zip(prices, ready_s, strict=True)]
    return float(costs - sum(rents))


def _with_spare_levels(prices: Floats, unused: float) -> Floats:
    return np.append(prices, np.full(1 + len(prices) // 8, unused))


class _Flow:
    """Jobs and machines at levels, always the cheapest for the prices; `balance` makes them equally many.

    The nodes are the levels and, last, `outside`, which has the machines that a level doesn't use. `excess`: a level's jobs minus
    its machines. `step_s[a, b]`: the least cost of a move from node a to b; between levels a job moves, `step_job[a, b]`, to and
    from outside a machine.
    """

    def __init__(self, run_s: Floats, ready_s: Sequence[Sequence[float]], prices: Sequence[Floats]) -> None:
        self.kind = np.repeat(np.arange(len(prices)), [len(of_kind) for of_kind in prices])
        from_end = np.concatenate([np.arange(1.0, len(of_kind) + 1) for of_kind in prices])
        self.cost_s = np.ascontiguousarray((from_end[:, None] * run_s[self.kind]).T)
        self.price_s = np.append(np.concatenate(prices), 0.0)
        self.level = (self.cost_s + self.price_s[:-1]).argmin(axis=1)
        self.ready_s = [np.append(ready_s[kind], inf) for kind in self.kind.tolist()]
        self.machines = [int(np.searchsorted(*both)) for both in zip(self.ready_s, self.price_s[:-1], strict=True)]
        self.outside = len(self.kind)
        excess = np.bincount(self.level, minlength=self.outside) - self.machines
        self.excess = np.append(excess, -excess.sum())
        self.step_s = np.full((self.outside + 1, self.outside + 1), inf)
        self.step_job = np.zeros(self.step_s.shape, dtype=int)
        for level in range(self.outside):
            self._update_steps(level)

    def jobs(self) -> list[NDArray[np.int64]]:
        """The number of jobs at each level, by kind."""
        return self._by_kind(np.bincount(self.level, minlength=self.outside))

    def prices(self) -> list[Floats]:
        """The prices of levels, by kind."""
        return self._by_kind(self.price_s[:-1] - self.price_s[-1])

    def balance(self) -> None:
        """Moves jobs and machines until each job has a machine."""
        while self.excess.max() > 0:
            path = self._shortest_path()
            self.excess[path[0]] -= 1
            self.excess[path[-1]] += 1
            for start, end in pairwise(path):
                if end == self.outside:
                    self.machines[start] += 1
                elif start == self.outside:
                    self.machines[end] -= 1
                else:
                    self.level[self.step_job[start, end]] = end
            for node in path:
                self._update_steps(node)

    def _shortest_path(self) -> list[int]:
        """From the node with the most jobs too many to the nearest with too few (Dijkstra); prices change by the distances."""
        distance_s = np.full(len(self.excess), inf)
        distance_s[self.excess.argmax()] = 0.0
        before = np.full(len(distance_s), -1)
        final = np.zeros(len(distance_s), dtype=bool)
        while self.excess[node := int(np.where(final, inf, distance_s).argmin())] >= 0:
            final[node] = True
            # With prices no step costs less than 0, except for rounding.
            through_s = distance_s[node] + np.maximum(0.0, self.step_s[node] + self.price_s - self.price_s[node])
            nearer = ~final & (through_s < distance_s)
            distance_s[nearer] = through_s[nearer]
            before[nearer] = node
        self.price_s -= np.minimum(distance_s, distance_s[node])
        path = [node]
        while before[path[-1]] >= 0:
            path.append(int(before[path[-1]]))
        return path[::-1]

    def _update_steps(self, node: int) -> None:
        """The costs of steps that depend on the jobs or machines of this level."""
        if node == self.outside:
            return
        jobs = np.flatnonzero(self.level == node)
        self.step_s[node] = inf
        if len(jobs):
            more_s = self.cost_s[jobs] - self.cost_s[jobs, node][:, None]
            cheapest = more_s.argmin(axis=0)
            self.step_s[node, :-1] = more_s[cheapest, np.arange(self.outside)]
            self.step_job[node, :-1] = jobs[cheapest]
        used, ready_s = self.machines[node], self.ready_s[node]
        self.step_s[node, -1] = ready_s[used]
        self.step_s[-1, node] = -ready_s[used - 1] if used else inf

    def _by_kind(self, of_levels: NDArray[Number]) -> list[NDArray[Number]]:
        return np.split(of_levels, np.flatnonzero(np.diff(self.kind)) + 1)
