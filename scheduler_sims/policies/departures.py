"""The running jobs that may leave, by rank and by node, and when something will happen to running jobs.

Policies that preempt hand these books on from plan to plan, and bring them up to date with the jobs that changed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator
from math import inf
from operator import itemgetter

from emulator_runtime.domain.job import Configuration
from scheduler_sims.interface.plan import Allocation, TaskPlacement
from scheduler_sims.interface.view import JobView, Phase
from scheduler_sims.policies.placing import FreeSpace

Key = tuple[float, float, float]
"""Sort key of a running job: rank, submit time, row. The largest key stops first."""

FIRST, LAST = (-inf, -inf, -inf), (inf, inf, inf)
"""Below and above the keys of all jobs."""


class Hope:
    """Where a configuration may get room by stopping jobs: it is in vain on a node where it was with the same limit or a smaller
    one, until a job is added there or capacity is released. `added`, `freed`: up to where that is known."""

    __slots__ = ("_failed", "_open", "_ordered", "added", "freed")

    def __init__(self) -> None:
        self.added = self.freed = 0
        self._open: set[str] = set()
        self._failed: dict[str, Key] = {}
        """The smallest limit with which it was in vain, by node."""
        self._ordered: list[tuple[Key, str]] = []
        """The same in order of the limits."""

    def renew(self, nodes: Iterable[str]) -> None:
        """Something has happened on these nodes."""
        for node in nodes:
            if node not in self._open:
                self._open.add(node)
                self._forget(node)

    def nodes(self, limit: Key) -> set[str]:
        """Those where it may get room by stopping jobs with a key above `limit`."""
        at = bisect_right(self._ordered, limit, key=_limit)
        return self._open.union([node for _, node in self._ordered[at:]])

    def fail(self, node: str, limit: Key) -> None:
        """It was in vain there with this limit."""
        if node not in self._failed or limit < self._failed[node]:
            self._open.discard(node)
            self._forget(node)
            self._failed[node] = limit
            insort(self._ordered, (limit, node))

    def _forget(self, node: str) -> None:
        if (limit := self._failed.pop(node, None)) is not None:
            del self._ordered[bisect_left(self._ordered, (limit, node))]


_limit = itemgetter(0)


class Departures:
    """The jobs that hold resources and may leave: those that are stopping, and those that may be preempted, by rank and by node.

    It can be handed on from plan to plan (`Handed`): `put` and `drop` the jobs that changed.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, JobView] = {}
        self.ranks: dict[str, float] = {}
        """Of the jobs that may be preempted; upper bounds, if they are refined."""
        self.leaving: dict[str, JobView] = {}
        self.ranked: list[tuple[float, float, int, str]] = []
        """The jobs that may be preempted, the largest key last."""
        self.version = 0
        """Grows with each job that is added: what was not possible may be possible now."""
        self.failed: dict[Configuration, tuple[float, int, int, FreeSpace]] = {}
        """For a configuration without room: the rank above which jobs would have been preempted, the versions of this object
        and of the free space, and that space."""
        self.hopes: dict[Configuration, Hope] = {}
        self.added: list[str] = []
        """The nodes of all jobs that were added, in order."""
        self.space: FreeSpace | None = None
        self.keys: dict[str, Key] = {}
        """Of all jobs; that of a stopping job is above all others."""
        self._on_node: dict[str, dict[str, JobView]] = {}
        self._tasks: dict[str, dict[str, list[TaskPlacement]]] = {}
        """Of each job on each node."""
        self._shares: dict[str, int] = {}
        self.left: dict[str, int] = {}
        """The nodes that stopping jobs leave, with the number of their tasks there."""
        self._top: dict[str, Key] = {}
        self._first: dict[str, tuple[float, int, int]] = {}

    def put(self, job: JobView, rank: float) -> None:
        """The job may leave; `rank` doesn't matter for one that is stopping."""
        self.drop(job.job_id)
        self.version += 1
        self.jobs[job.job_id] = job
        if leaves(job):
            self.leaving[job.job_id] = job
            key = LAST
        else:
            self.ranks[job.job_id] = rank
            insort(self.ranked, (rank, job.submit_s, job.row, job.job_id))
            key = (rank, job.submit_s, job.row)
        self.keys[job.job_id] = key
        for task in held(job).tasks:
            node, shares = task.node, len(task.shares)
            self.added.append(node)
            self._first.pop(node, None)
            if key == LAST:
                self.left[node] = self.left.get(node, 0) + 1
            if node not in self._on_node:
                self._on_node[node], self._tasks[node], self._shares[node] = {}, {}, 0
            self._on_node[node][job.job_id] = job
            self._tasks[node].setdefault(job.job_id, []).append(task)
            self._shares[node] += shares
            if node in self._top and key > self._top[node]:
                self._top[node] = key

    def drop(self, job_id: str) -> None:
        """The job may not leave, or has left."""
        job = self.jobs.pop(job_id, None)
        if job is None:
            return
        key = self.keys.pop(job_id)
        for task in held(job).tasks:
            node = task.node
            self._on_node[node].pop(job_id, None)
            self._tasks[node].pop(job_id, None)
            self._shares[node] -= len(task.shares)
            self._first.pop(node, None)
            if key == LAST:
                self.left[node] -= 1
                if not self.left[node]:
                    del self.left[node]
            if self._top.get(node) == key:
                del self._top[node]
        if self.leaving.pop(job_id, None) is None:
            self._unrank(job)

    def rank(self, job: JobView, rank: float) -> None:
        """Another rank of a job that may be preempted, not above the one before."""
        if rank != self.ranks[job.job_id]:
            self._unrank(job)
            self.ranks[job.job_id] = rank
            insort(self.ranked, (rank, job.submit_s, job.row, job.job_id))
            self.keys[job.job_id] = (rank, job.submit_s, job.row)
            for task in held(job).tasks:
                self._top.pop(task.node, None)

    def top(self, node: str) -> Key | None:
        """The largest key of the jobs on a node; None without any."""
        top = self._top.get(node)
        if top is None and (on := self._on_node.get(node)):
            top = self._top[node] = max([self.keys[job_id] for job_id in on])
        return top

    def first(self, node: str) -> tuple[float, int, int] | None:
        """The first job on a node in order of submission, as submit time, row and which of its tasks it is; None without any."""
        first = self._first.get(node)
        if first is None and (on := self._on_node.get(node)):
            first = self._first[node] = min([position(job, node) for job in on.values()])
        return first

    def on(self, node: str) -> Iterable[JobView]:
        """The jobs on a node."""
        return self._on_node.get(node, {}).values()

    def tasks(self, node: str, jobs: Iterable[JobView]) -> list[TaskPlacement]:
        """The tasks of these jobs on a node."""
        on_node = self._tasks[node]
        return [task for job in jobs for task in on_node[job.job_id]]

    def nodes(self) -> Collection[str]:
        """All nodes where a job may leave, or might before."""
        return self._on_node.keys()

    def devices(self, node: str) -> int:
        """How many shares of the node's devices the jobs on it have."""
        return self._shares.get(node, 0)

    def above(self, limit: Key) -> Iterator[JobView]:
        """The jobs that may be preempted with a key above `limit`, the largest first."""
        for rank, submit_s, row, job_id in reversed(self.ranked):
            if (rank, submit_s, row) <= limit:
                return
            yield self.jobs[job_id]

    def _unrank(self, job: JobView) -> None:
        entry = (self.ranks.pop(job.job_id), job.submit_s, job.row, job.job_id)
        del self.ranked[bisect_left(self.ranked, entry)]


class Timeline:
    """At what time something will happen to each of some jobs, in order of time."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self.ordered: list[tuple[float, str]] = []

    def expect(self, job_id: str, at_s: float) -> None:
        """It will happen at that time, not at the one that was expected before."""
        self.drop(job_id)
        self.times[job_id] = at_s
        insort(self.ordered, (at_s, job_id))

    def drop(self, job_id: str) -> None:
        """It won't happen."""
        at_s = self.times.pop(job_id, None)
        if at_s is not None:
            del self.ordered[bisect_left(self.ordered, (at_s, job_id))]

    def until(self, at_s: float) -> list[str]:
        """The jobs that are expected before that time, in order of time."""
        return [job_id for _, job_id in self.ordered[: bisect_left(self.ordered, (at_s, ""))]]


def position(job: JobView, node: str) -> tuple[float, int, int]:
    """The place of a job in order of submission, and that of the node in the job."""
    return (job.submit_s, job.row, held(job).nodes.index(node))


def leaves(job: JobView) -> bool:
    """Whether a job is stopping already."""
    return job.phase is Phase.STOPPING


def held(job: JobView) -> Allocation:
    """The allocation of a job that holds resources."""
    assert job.allocation is not None, f"job {job.job_id} holds resources, but has no allocation in the view"
    return job.allocation
