"""AlloX's matching of jobs with machines and queue positions, independent of clusters and plans.

A job that is k-th from the end of a machine's queue delays itself and the k-1 jobs behind it by its run time p; all of them
wait until the machine is free (after R). So it adds R + k*p to the sum of completion times, independently of the rest of
the queue, and the least sum is a minimum-cost bipartite matching of jobs with pairs (machine, k): Le et al., AlloX,
EuroSys 2020, section 4; Horn 1973 and Bruno et al. 1974 for the underlying scheduling problem. The time that jobs have
waited so far is a constant and left out. The solver is in levels.py.

Example: one machine, free after R = 2, run times 3 and 5. The order 3, 5 costs (2 + 2*3) + (2 + 1*5) = 15, which is the
sum of the completion times 5 and 10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from emulator_runtime.domain.errors import PolicyError

_EARLIER = 1e-12


@dataclass(frozen=True, slots=True)
class Queue:
    """The jobs of one machine in the order in which they run, as indices into the jobs."""

    machine: int
    jobs: tuple[int, ...]


Solver = Callable[[Sequence[Sequence[float]], Sequence[Sequence[float]]], tuple[list[int], list[list[int]]]]
"""`levels.fill_levels`."""


def load_solver() -> Solver:
    """The solver. It imports NumPy, which takes seconds on a busy machine: call it before the first matching. Raises PolicyError
    if NumPy is missing."""
    try:
        from scheduler_sims.policies.allox.levels import fill_levels
    except ImportError as error:
        raise PolicyError("allox needs NumPy: pip install 'emugpu[scheduler]'") from error
    return fill_levels


def match(kinds: Sequence[int], ready_s: Sequence[float], run_s: Mapping[int, Sequence[float]]) -> list[Queue]:
    """The queues with the least sum of completion times, one for each machine that gets jobs, in machine order.

    `kinds[m]` is the kind of machine m and `ready_s[m]` the time until it is free; `run_s[kind][j]` is job j's run time
    on that kind, inf if it can't run there. A job that can run on no machine is in no queue. Raises PolicyError if the times
    are too large to add up.

    Many matchings have the least sum, since jobs that are equally far from the end of their queues can be exchanged. These ties
    are broken here, so that noise in `ready_s` doesn't:

    - Shorter jobs go to machines that are free earlier, which leaves most room for future jobs. Of machines that are free at
      the same time, shorter jobs go to those where they start earlier. On equal machines this is shortest job first.
    - Of equal jobs the earlier one runs first: run times are multiplied by 1 + 1e-12 * j.

    Remaining ties, between kinds of machine, are up to the solver, which gets jobs and kinds in the given order.
    """
    present = sorted(set(kinds))
    jobs = [j for j in range(_width(run_s)) if any(isfinite(run_s[kind][j]) for kind in present)]
    if not jobs:
        return []
    costs = [[run_s[kind][j] * (1 + _EARLIER * i) for i, j in enumerate(jobs)] for kind in present]
    longest = (max(filter(isfinite, times)) for times in zip(*costs, strict=True))
    if not isfinite(len(jobs) * (max(ready_s) + sum(longest))):
        raise PolicyError("allox: estimated run times are too large to add up; give them in seconds")
    machines = [sorted((m for m, of in enumerate(kinds) if of == kind), key=ready_s.__getitem__) for kind in present]
    kind_of, counts = load_solver()(costs, [[ready_s[m] for m in of_kind] for of_kind in machines])
    queues: list[Queue] = []
    for number, times in enumerate(costs):
        chosen = sorted((time, jobs[i]) for i, time in enumerate(times) if kind_of[i] == number)
        queues += _queues(machines[number], ready_s, [job for _, job in chosen], counts[number])
    return sorted(queues, key=lambda queue: queue.machine)


def _queues(
    machines: Sequence[int], ready_s: Sequence[float], jobs: Sequence[int], counts: Sequence[int]
) -> Iterator[Queue]:
    """The queues of machines of one kind, which are given in the order in which they get free. `jobs`: shortest first; `counts`:
    how many of them are the last in a queue, the last but one, and so on.

    Example: two free machines, jobs a, b, c, counts 2 and 1: a then c, and b.
    """
    queues: list[list[int]] = [[] for _ in machines]
    lengths = [sum(count > position for count in counts) for position in range(len(machines))]
    first = 0
    for count in reversed(counts):
        places = sorted(range(count), key=lambda position: (ready_s[machines[position]], lengths[position]))
        for position, job in zip(places, jobs[first : first + count], strict=True):
            queues[position].append(job)
        first += count
    return (Queue(machine, tuple(queue)) for machine, queue in zip(machines, queues, strict=True) if queue)


def _width(run_s: Mapping[int, Sequence[float]]) -> int:
    return max((len(times) for times in run_s.values()), default=0)
