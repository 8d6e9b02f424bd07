"""AlloX's matching of jobs with machines and queue positions, independent of clusters and plans.

A job that is k-th from the end of a machine's queue delays itself and the k-1 jobs behind it by its run time p; all of them
wait until the machine is free (after R). So it adds R + k*p to the sum of completion times, independently of the rest of
the queue, and the least sum is a minimum-cost bipartite matching of jobs with pairs (machine, k): Le et al., AlloX,
EuroSys 2020, section 4; Horn 1973 and Bruno et al. 1974 for the underlying scheduling problem. The time that jobs have
waited so far is a constant and left out. Only this file needs NumPy and SciPy.

Example: one machine, free after R = 2, run times 3 and 5. The order 3, 5 costs (2 + 2*3) + (2 + 1*5) = 15, which is the
sum of the completion times 5 and 10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, isfinite

from emulator_runtime.domain.errors import PolicyError

_EARLIER = 1e-12
_SHORT_FIRST = 1e-6


@dataclass(frozen=True, slots=True)
class Queue:
    """The jobs of one machine in the order in which they run, as indices into the jobs."""

    machine: int
    jobs: tuple[int, ...]


def load_solver() -> None:
    """Import NumPy and SciPy, which takes seconds on a busy machine, so that the first matching isn't late. Raises PolicyError if
    they are missing."""
    try:
        import scipy.optimize  # noqa: F401
    except ImportError as error:
        raise PolicyError("allox needs NumPy and SciPy: pip install 'emugpu[scheduler]'") from error


def match(kinds: Sequence[int], ready_s: Sequence[float], run_s: Mapping[int, Sequence[float]]) -> list[Queue]:
    """The queues with the least sum of completion times, one for each machine that gets jobs, in machine order.

    `kinds[m]` is the kind of machine m and `ready_s[m]` the time until it is free; `run_s[kind][j]` is job j's run time
    on that kind, inf if it can't run there. A job that can run on no machine is in no queue. Raises PolicyError if the times
    are too large to add up.

    Many matchings have the least sum, since jobs in the last positions can be exchanged. Two small terms break these ties, so
    that noise in `ready_s` doesn't:

    - A run time weighs less on machines that are free later (by up to 1e-6). So shorter jobs go to machines that are free
      earlier, which leaves most room for future jobs; on equal machines this is shortest job first.
    - Of equal jobs the earlier one runs first: run times are multiplied by 1 + 1e-12 * j.

    Remaining ties are up to SciPy's solver, which gets jobs and machines in the given order.
    """
    jobs = [j for j in range(_width(run_s)) if any(isfinite(run_s[kind][j]) for kind in set(kinds))]
    if not jobs:
        return []
    costs = {kind: [run_s[kind][j] * (1 + _EARLIER * i) for i, j in enumerate(jobs)] for kind in set(kinds)}
    places = [
        (machine, k)
        for machine, most in enumerate(_most_positions(kinds, ready_s, costs, len(jobs)))
        for k in range(1, most + 1)
    ]
    by_machine: dict[int, list[tuple[int, int]]] = {}
    for place, column in _assign(places, kinds, ready_s, costs):
        machine, k = places[place]
        by_machine.setdefault(machine, []).append((k, jobs[column]))
    return [
        Queue(machine, tuple(job for _, job in sorted(queue, reverse=True)))
        for machine, queue in sorted(by_machine.items())
    ]


def _width(run_s: Mapping[int, Sequence[float]]) -> int:
    return max((len(times) for times in run_s.values()), default=0)


def _assign(
    places: Sequence[tuple[int, int]],
    kinds: Sequence[int],
    ready_s: Sequence[float],
    costs: Mapping[int, Sequence[float]],
) -> list[tuple[int, int]]:
    """Pairs (index of a place, job column) of least cost. Infeasible pairs cost inf, which the solver never takes."""
    load_solver()
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    times = {kind: np.array(of_jobs) for kind, of_jobs in costs.items()}
    with np.errstate(over="ignore"):
        latest = max(ready_s) or 1.0
        rows = [
            ready_s[machine] + (k - _SHORT_FIRST * ready_s[machine] / latest) * times[kinds[machine]]
            for machine, k in places
        ]
        matrix = np.array(rows)
        possible = np.array([np.isfinite(times[kinds[machine]]) for machine, _ in places])
        if not np.isfinite(matrix[possible].sum()):
            raise PolicyError("allox: estimated run times are too large to add up; give them in seconds")
    row, column = linear_sum_assignment(matrix)
    return list(zip(row.tolist(), column.tolist(), strict=True))


def _most_positions(
    kinds: Sequence[int], ready_s: Sequence[float], costs: Mapping[int, Sequence[float]], jobs: int
) -> list[int]:
    """The maximum queue length of each machine in an optimal matching; it removes most of the n * m positions.

    The first job of a queue of length L, with run time p, counts L times. At the front of the queue (length L') of a machine
    of the same kind that is free d later it would count L' + 1 times, so an optimum has L' >= L - 1 - d/p. With the shortest
    p, and d = 0 for machines that are free earlier, a queue of length L implies this number of jobs in other queues.

    Example: 10 jobs, two equal machines, both free (d = 0): L + (L - 1) <= 10, so no queue is longer than 5.
    """
    most = []
    for machine, kind in enumerate(kinds):
        shortest = min(costs[kind])
        if shortest == inf:
            most.append(0)
            continue
        later = [ready_s[m] - ready_s[machine] for m, other in enumerate(kinds) if other == kind and m != machine]
        heads = [_in_jobs(d, shortest, jobs) for d in later]
        most.append(_longest(heads, jobs))
    return most


def _in_jobs(later_s: float, shortest_s: float, jobs: int) -> int:
    """`later_s` in units of the shortest job, rounded up, at most `jobs`."""
    if later_s <= 0:
        return 0
    if later_s >= jobs * shortest_s:
        return jobs
    return ceil(later_s / shortest_s + 1e-9)


def _longest(heads: Sequence[int], jobs: int) -> int:
    """The largest L with L + sum(max(0, L - 1 - head)) <= jobs, by bisection."""
    low, high = 1, jobs
    while low < high:
        middle = (low + high + 1) // 2
        if middle + sum(max(0, middle - 1 - head) for head in heads) <= jobs:
            low = middle
        else:
            high = middle - 1
    return low
