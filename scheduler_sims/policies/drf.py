"""DRF: dominant resource fairness between users, the baseline of AlloX's evaluation.

The user with the smallest dominant share (largest share of any one resource) is served next (Ghodsi et al., NSDI 2011).
Here with equal weights, whole devices, one configuration per job, and without preemption.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heapreplace
from typing import ClassVar

from scheduler_sims.interface.handed import Handed, taken
from scheduler_sims.interface.plan import Allocation, Plan
from scheduler_sims.interface.view import ClusterView, JobView, NodeTable
from scheduler_sims.policies.placing import main_configuration
from scheduler_sims.policies.sjf import isolated_s
from scheduler_sims.policies.waiting import Entry, Lines, Order, Scan, Waiting, answer


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


_Amounts = tuple[int, int, int]
"""GPUs, thousandths of CPUs, bytes of memory."""


@dataclass(frozen=True, slots=True)
class _Memory:
    lines: Lines | None
    holdings: Handed[Holdings] | None


class Holdings:
    """What each user's jobs hold. A resource that a job doesn't state (memory 0) isn't counted."""

    def __init__(self) -> None:
        self.of_user: dict[str, _Amounts] = {}
        self._of_job: dict[str, tuple[str, _Amounts]] = {}

    def follow(self, view: ClusterView, changed: Iterable[str]) -> None:
        """Read these jobs from the view."""
        for job_id in changed:
            if (before := self._of_job.pop(job_id, None)) is not None:
                user, held = before
                self.of_user[user] = _sum(self.of_user[user], held, -1)
            job = view.jobs.get(job_id)
            if job is not None and job.allocation is not None:
                held = _amounts(job.allocation)
                self._of_job[job_id] = (job.user, held)
                self.of_user[job.user] = _sum(self.of_user.get(job.user, _NOTHING), held)


_NOTHING = (0, 0, 0)


def _amounts(allocation: Allocation) -> _Amounts:
    tasks = allocation.tasks
    return allocation.gpus, sum([task.cpu_milli for task in tasks]), sum([task.memory_bytes for task in tasks])


def _sum(one: _Amounts, other: _Amounts, sign: int = 1) -> _Amounts:
    return one[0] + sign * other[0], one[1] + sign * other[1], one[2] + sign * other[2]


class DominantShares:
    """Each user's share of the cluster's GPUs, CPUs and memory, counted over the jobs that hold resources or start now."""

    def __init__(self, view: ClusterView, holdings: Holdings) -> None:
        self._totals = _totals(view)
        self._holdings = holdings
        self._starting: dict[str, _Amounts] = {}

    def add(self, user: str, allocation: Allocation) -> None:
        """A job of `user` starts."""
        self._starting[user] = _sum(self._starting.get(user, _NOTHING), _amounts(allocation))

    def of(self, user: str) -> float:
        """The user's largest share of one resource, 0 to 1."""
        held = _sum(self._holdings.of_user.get(user, _NOTHING), self._starting.get(user, _NOTHING))
        return max((h / total for h, total in zip(held, self._totals, strict=True) if total), default=0.0)


def _totals(view: ClusterView) -> _Amounts:
    known = view.nodes.sizes if isinstance(view.nodes, NodeTable) else None
    if known is None or _totals not in known:
        nodes = view.nodes.values()
        totals = (
            sum(len(node.devices) for node in nodes),
            sum(node.cpu_milli for node in nodes),
            sum(node.memory_bytes for node in nodes),
        )
        if known is None:
            return totals
        known[_totals] = totals
    found: _Amounts = known[_totals]
    return found


def _user(_view: ClusterView, job: JobView) -> str:
    return job.user


def _serve(view: ClusterView, order: Order) -> Plan:
    memory: _Memory | None = view.state
    waiting = Waiting(view, memory.lines if memory else None, order)
    holdings = taken(memory.holdings if memory else None)
    changed: Iterable[str] = view.changes
    if holdings is None:
        holdings, changed = Holdings(), view.jobs
    holdings.follow(view, changed)
    shares = DominantShares(view, holdings)
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
    plan = answer(view, waiting, scan, "its user has the lowest dominant share of those whose next job fits")
    return replace(plan, state=_Memory(plan.state, Handed([holdings])))


def _next_of(
    view: ClusterView, waiting: Waiting, shares: DominantShares, user: str, start: int
) -> tuple[float, tuple[float, int], str, int] | None:
    """The user's next job as (dominant share, submission order, job id, index in the user's line), to be compared."""
    following: tuple[int, Entry] | None = next(waiting.line(user, start), None)
    if following is None:
        return None
    index, (_, submit_s, row, job_id, _) = following
    return shares.of(user), (submit_s, row), job_id, index
