"""DRF: dominant resource fairness between users, the baseline of AlloX's evaluation.

The user with the smallest dominant share (largest share of any one resource) is served next (Ghodsi et al., NSDI 2011).
Here with equal weights, whole devices, one configuration per job, and without preemption.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heapreplace
from typing import ClassVar

from scheduler_sims.interface.plan import Allocation, Plan
from scheduler_sims.interface.view import ClusterView, JobView
from scheduler_sims.policies.placing import main_configuration
from scheduler_sims.policies.sjf import isolated_s
from scheduler_sims.policies.waiting import Entry, Order, Scan, Waiting, answer


class DrfFifo:
    """The user with the lowest dominant share is served next, with that user's first job.

    Ties between users: the job that was submitted first. A user whose next job doesn't fit is skipped until the next
    event. Jobs use their GPU configuration; only jobs without one run on CPUs. Running jobs aren't stopped.
    """

    needs_estimates: ClassVar[bool] = False
    preemptive: ClassVar[bool] = False

    def plan(self, view: ClusterView) -> Plan:
        """Starts jobs user by user until no user's next job fits."""
        return _serve(view, Order(lambda _view, _job: 0.0, _user))


class DrfSjf:
    """The user with the lowest dominant share is served next, with that user's shortest job.

    Like drf-fifo, but a user's jobs are ordered by estimated isolated run time in their GPU configuration.
    """

    needs_estimates: ClassVar[bool] = True
    preemptive: ClassVar[bool] = False

    def plan(self, view: ClusterView) -> Plan:
        """Starts jobs user by user until no user's next job fits. Raises PolicyError for an unusable estimate."""
        return _serve(view, Order(isolated_s, _user))


class DominantShares:
    """Each user's share of the cluster's GPUs, CPUs and memory, counted over the jobs that hold resources."""

    def __init__(self, view: ClusterView, holders: Iterable[JobView]) -> None:
        nodes = view.nodes.values()
        self._totals = (
            sum(len(node.devices) for node in nodes),
            sum(node.cpu_milli for node in nodes),
            sum(node.memory_bytes for node in nodes),
        )
        self._held: dict[str, tuple[int, int, int]] = {}
        for job in holders:
            if job.allocation:
                self.add(job.user, job.allocation)

    def add(self, user: str, allocation: Allocation) -> None:
        """Adds a job of `user`. A resource that the job doesn't state (memory 0) isn't counted."""
        gpus, cpu_milli, memory_bytes = self._held.get(user, (0, 0, 0))
        for task in allocation.tasks:
            gpus += len(task.shares)
            cpu_milli += task.cpu_milli
            memory_bytes += task.memory_bytes
        self._held[user] = (gpus, cpu_milli, memory_bytes)

    def of(self, user: str) -> float:
        """The user's largest share of one resource, 0 to 1."""
        held = self._held.get(user, (0, 0, 0))
        return max((h / total for h, total in zip(held, self._totals, strict=True) if total), default=0.0)


def _user(_view: ClusterView, job: JobView) -> str:
    return job.user


def _serve(view: ClusterView, order: Order) -> Plan:
    waiting = Waiting(view, view.state, order)
    shares = DominantShares(view, waiting.holders())
    heads = [head for line in waiting.lines() if (head := _next_of(view, waiting, shares, str(line), 0))]
    heapify(heads)
    scan = Scan({}, [])
    while heads:
        _, _, job_id, index = heads[0]
        job = view.jobs[job_id]
        allocation = waiting.space.place(main_configuration(view, job))
        follower = None
        if allocation is None:
            scan.blocked.append(job)
        else:
            scan.starts[job_id] = allocation
            shares.add(job.user, allocation)
            follower = _next_of(view, waiting, shares, job.user, index + 1)
        if follower:
            heapreplace(heads, follower)
        else:
            heappop(heads)
    return answer(view, waiting, scan, "its user has the lowest dominant share of those whose next job fits")


def _next_of(
    view: ClusterView, waiting: Waiting, shares: DominantShares, user: str, start: int
) -> tuple[float, tuple[float, int], str, int] | None:
    """The user's next job as (dominant share, submission order, job id, index in the user's line), to be compared."""
    following: tuple[int, Entry] | None = next(waiting.line(user, start), None)
    if following is None:
        return None
    index, (_, submit_s, row, job_id, _) = following
    return shares.of(user), (submit_s, row), job_id, index
