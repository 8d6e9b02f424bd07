"""Preemption: stop as few running jobs as possible, lowest priority first, without moving any job.

The textbook way (fill the empty cluster anew in order of priority) may give a running job's devices to another job although
both fit, and every such move costs a checkpoint and a restart. Here running jobs keep their devices, and a waiting job takes
the devices of jobs with a lower priority.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf

from emulator_runtime.domain.job import Configuration
from scheduler_sims.interface.plan import Allocation
from scheduler_sims.interface.view import JobView, Phase
from scheduler_sims.policies.placing import FreeSpace

_Key = tuple[float, float, float]
"""Sort key of a running job: rank, submit time, row. The largest key stops first."""

_LAST = (inf, inf, inf)


@dataclass(frozen=True, slots=True)
class Ranks:
    """Ranks of running jobs: the largest rank is preempted first (ties: the job submitted last).

    `at_most` has a rank for each job that may be preempted. With `refine` it is an upper bound, and `refine` computes the
    exact rank, only for jobs where it matters; `at_most` then holds the exact rank.
    """

    at_most: dict[str, float]
    refine: Callable[[JobView], float] | None = None

    def exact(self, job: JobView) -> float:
        if self.refine is not None:
            self.at_most[job.job_id] = self.refine(job)
        return self.at_most[job.job_id]


class Room:
    """Free capacity, plus the capacity of stopping and of preemptible jobs. `stopped` collects the jobs to preempt."""

    def __init__(self, space: FreeSpace, holders: Iterable[JobView], ranks: Ranks) -> None:
        self._space = space
        self._ranks = ranks
        self._on_node: dict[str, list[JobView]] = {}
        self._all: dict[str, JobView] = {}
        self._highest: dict[str, float] = {}
        for job in holders:
            rank = inf if _leaves(job) else ranks.at_most.get(job.job_id)
            if rank is not None:
                self._all[job.job_id] = job
                for node in dict.fromkeys(_allocation(job).nodes):
                    self._on_node.setdefault(node, []).append(job)
                    self._highest[node] = max(rank, self._highest.get(node, 0.0))
        self.stopped: list[JobView] = []

    def place(self, configuration: Configuration, above: float) -> Allocation | None:
        """Places `configuration` in free capacity, else on the node with the cheapest preemption; None if there is none.

        Only jobs with a rank above `above` are preempted. The cheapest node is the one where the highest-priority job that
        has to stop has the lowest priority; a node where stopping jobs leave enough capacity costs nothing. The plan may
        name such devices although they are not free yet. For a job of several tasks the whole cluster is treated as one
        node is otherwise.
        """
        allocation = self._space.place(configuration)
        if allocation is not None:
            return allocation
        if configuration.min_tasks > 1:
            return self._place_gang(configuration, (above, inf, inf))
        best: tuple[str, list[JobView]] | None = None
        limit = (above, inf, inf)
        for node, highest in self._highest.items():
            leaving = self._leaving(configuration, node, limit) if (highest, inf, inf) >= limit else None
            if leaving is not None:
                best = node, leaving
                limit = min((self._key(job) for job in leaving if not _leaves(job)), default=_LAST)
                if limit == _LAST:
                    break
                # Only a cheaper node can replace this one.
        return None if best is None else self._clear(configuration, *best)

    def _leaving(self, configuration: Configuration, node: str, limit: _Key) -> list[JobView] | None:
        """The jobs on `node`, all with a key above `limit`, that must leave for `configuration`; None if that isn't enough."""
        may = [job for job in self._on_node[node] if _leaves(job) or self._key(job) > limit]
        if not may or not self._enough(configuration, node, may):
            return None
        for job in may:
            if not _leaves(job):
                self._ranks.exact(job)
        going = sorted((_LAST if _leaves(job) else self._key(job), job.job_id, job) for job in may)
        leaving: list[JobView] = []
        while going and (going[-1][0] > limit or _leaves(going[-1][2])):
            leaving.append(going.pop()[2])
            if self._enough(configuration, node, leaving):
                return self._needed(configuration, node, leaving)
        return None

    def _place_gang(self, configuration: Configuration, limit: _Key) -> Allocation | None:
        """Preempts jobs in order of their keys until all tasks fit, except jobs whose departure isn't needed."""
        may = [job for job in self._all.values() if _leaves(job) or self._key(job) > limit]
        if not self._enough_everywhere(configuration, may):
            return None
        for job in may:
            if not _leaves(job):
                self._ranks.exact(job)
        ranked = ((_LAST if _leaves(job) else self._key(job), job.job_id, job) for job in may)
        going = [job for key, _, job in sorted(ranked, reverse=True) if key > limit or _leaves(job)]
        counts = range(len(going) + 1)
        count = bisect_left(counts, 1, key=lambda n: self._enough_everywhere(configuration, going[:n]))
        if count == len(counts):
            return None  # the exact ranks of some jobs are lower than their bounds
        leaving = going[:count]
        for job in reversed(leaving):
            others = [other for other in leaving if other is not job]
            if self._enough_everywhere(configuration, others):
                leaving = others
        self._release(leaving)
        return self._space.place(configuration)

    def _enough_everywhere(self, configuration: Configuration, leaving: list[JobView]) -> bool:
        """Whether all tasks of `configuration` fit after `leaving` have left."""
        space = self._space.copy()
        for job in leaving:
            space.release(_allocation(job))
        return space.place(configuration) is not None

    def _key(self, job: JobView) -> _Key:
        return (self._ranks.at_most[job.job_id], *job.order)

    def _needed(self, configuration: Configuration, node: str, leaving: list[JobView]) -> list[JobView]:
        """`leaving` without jobs whose departure isn't needed; jobs of the highest priority are spared first."""
        for job in reversed(leaving):
            others = [other for other in leaving if other is not job]
            if self._enough(configuration, node, others):
                leaving = others
        return leaving

    def _enough(self, configuration: Configuration, node: str, leaving: list[JobView]) -> bool:
        """Whether `configuration` fits on `node` after `leaving` have left."""
        return self._space.fits(configuration, node, [_allocation(job) for job in leaving])

    def _clear(self, configuration: Configuration, node: str, leaving: list[JobView]) -> Allocation | None:
        self._release(leaving)
        return self._space.place(configuration, node=node)

    def _release(self, leaving: list[JobView]) -> None:
        for job in leaving:
            self._space.release(_allocation(job))
            del self._all[job.job_id]
            for other in dict.fromkeys(_allocation(job).nodes):
                self._on_node[other] = [j for j in self._on_node[other] if j.job_id != job.job_id]
            if not _leaves(job):
                self.stopped.append(job)


def _leaves(job: JobView) -> bool:
    """Whether a job is stopping already."""
    return job.phase is Phase.STOPPING


def _allocation(job: JobView) -> Allocation:
    """The allocation of a job that holds resources."""
    assert job.allocation is not None, f"job {job.job_id} holds resources, but has no allocation in the view"
    return job.allocation
