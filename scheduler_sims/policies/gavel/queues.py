"""FIFO and AlloX as Gavel codes them: a job gets one GPU type for all the time, or none.

Differences from emugpu's own `fifo` and `allox`: decisions are made at resets of the shares, a job keeps its type until it ends
(AlloX), and GPUs that a reset leaves without a job wait for the next one, up to `reset_s` (FIFO).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from emulator_runtime.domain.errors import PolicyError
from scheduler_sims.policies.gavel.problem import Problem, Shares

_SLOWEST = 1e-10
"""Steps per second on a type that a job can't use: last choice of the matching (as coded in Gavel)."""


def fifo(problem: Problem, _memory: None) -> tuple[Shares, None]:
    """In order of submission each job gets the type on which it is fastest among those with enough GPUs left.

    Ends at the first job for which no type has enough. (`fifo_perf` in Gavel.)
    """
    left, types = problem.capacity.copy(), _sorted_types(problem)
    assigned: dict[str, int] = {}
    for job, gpus, rates in zip(problem.jobs, problem.gpus, problem.rates, strict=True):
        enough = [index for index in types if 0 < gpus <= left[index] and rates[index] > 0]
        if not enough:
            if not (rates > 0).any():
                continue  # it waits for a node with another type
            break
        best = max(enough, key=lambda index: rates[index])
        assigned[job] = best
        left[best] -= gpus
    return _whole(problem, assigned), None


def allox(problem: Problem, memory: Mapping[str, int] | None) -> tuple[Shares, Mapping[str, int]]:
    """Jobs without a type are matched with free GPUs and positions in their queues, for the least sum of completion times.

    Only the first job of each queue gets its type. Raises PolicyError for jobs of several GPUs.
    """
    from scipy.optimize import linear_sum_assignment

    _refuse_gangs(problem)
    assigned = {job: index for job, index in (memory or {}).items() if job in problem.jobs}
    left = problem.capacity.copy()
    for index in assigned.values():
        left[index] -= 1
    machines = [index for index in _sorted_types(problem) for _ in range(int(left[index]))]
    rows = [row for row, job in enumerate(problem.jobs) if job not in assigned]
    rows.sort(key=lambda row: -problem.age_s[row])
    if not machines or not rows:
        return _whole(problem, assigned), assigned
    rates = np.where(problem.rates > 0, problem.rates, _SLOWEST)[rows][:, machines]
    run_s = problem.steps_left[rows][:, None] / rates
    positions = np.arange(1, len(rows) + 1)
    costs = (positions[None, :, None] * run_s[:, None, :]).reshape(len(rows), -1) + problem.age_s[rows][:, None]
    queues: dict[int, tuple[int, int]] = {}
    for row, column in zip(*linear_sum_assignment(costs), strict=True):
        position, machine = divmod(int(column), len(machines))
        queues[machine] = max(queues.get(machine, (-1, -1)), (position, int(row)))
    for machine, (_, row) in sorted(queues.items()):
        assigned[problem.jobs[rows[row]]] = machines[machine]
    return _whole(problem, assigned), assigned


def _refuse_gangs(problem: Problem) -> None:
    for job, gpus in zip(problem.jobs, problem.gpus, strict=True):
        if gpus > 1:
            raise PolicyError(
                f"gavel: job {job!r} wants {gpus:g} GPUs; objective allox is defined for one-GPU jobs, use another objective"
            )


def _sorted_types(problem: Problem) -> list[int]:
    """Ties are decided by the names of types, as in Gavel."""
    return sorted(range(len(problem.types)), key=lambda index: problem.types[index])


def _whole(problem: Problem, assigned: Mapping[str, int]) -> Shares:
    types = range(len(problem.types))
    return {job: tuple(float(assigned.get(job, -1) == index) for index in types) for job in problem.jobs}
