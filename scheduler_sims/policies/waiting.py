"""The waiting jobs in a policy's order, kept sorted from one event to the next.

Sorting all waiting jobs at each event makes long workloads quadratic. Here the order is kept in `Plan.state`, and an event
touches only the jobs in `view.changes`. Jobs with equal demands form one line: if the head of a line doesn't fit, no job
behind it fits, so a backfill scan costs one attempt per line, not per job.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from itertools import islice
from math import isfinite
from typing import ClassVar

from emulator_runtime.domain.errors import PolicyError
from scheduler_sims.interface.plan import Allocation, Plan
from scheduler_sims.interface.view import ClusterView, JobView
from scheduler_sims.policies.placing import FreeSpace, main_configuration

Entry = tuple[float, float, int, str, float]
"""A waiting job: rank (smaller first; constant while the job waits), submit time, row, job id, time of queueing."""


def same_needs(view: ClusterView, job: JobView) -> Hashable:
    """The line of a job in a backfill scan: of jobs with equal demands either all fit or none."""
    c = main_configuration(view, job)
    return (c.gpus, c.cpu_milli, c.memory_bytes, c.gpu_types, c.device_memory_bytes, c.min_tasks)


def one_line(_view: ClusterView, _job: JobView) -> Hashable:
    """One line for all jobs: no job overtakes another."""
    return None


def checked_s(job: JobView, seconds: float) -> float:
    """`seconds`, if finite and not negative. Raises PolicyError with the job's name otherwise."""
    if not isfinite(seconds) or seconds < 0:
        raise PolicyError(f"job {job.job_id!r} has an estimated run time of {seconds} s; it must be finite and >= 0")
    return seconds


@dataclass(frozen=True, slots=True)
class Order:
    """A policy's order: the rank of a waiting job, and the line to which the job belongs."""

    rank: Callable[[ClusterView, JobView], float]
    line: Callable[[ClusterView, JobView], Hashable] = same_needs


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """The state between events, immutable (and without the view, which would keep all earlier views alive).

    A line may still hold entries of jobs that have left it; readers skip them. `holding`: jobs with resources.
    """

    KEPT: ClassVar[bool] = False
    """Not persisted over a restart of the scheduler: it can be computed from the next view."""

    lines: Mapping[Hashable, list[Entry]]
    holding: frozenset[str]
    space: FreeSpace


class Waiting:
    """The waiting jobs of one view in the order of one policy. `space`: free capacity, which the caller fills."""

    def __init__(self, view: ClusterView, old: Lines | None, order: Order) -> None:
        self._view = view
        self._order = order
        self.space = FreeSpace.now(view, old.space if old else None)
        if old is None or "node" in view.triggers:  # other nodes: other configurations may fit, so ranks change
            self._follow(Lines({}, frozenset(), self.space), view.jobs)
        else:
            self._follow(old, view.changes)

    def lines(self) -> Iterable[Hashable]:
        """All lines, possibly with entries of jobs that have left."""
        return self._lines.keys()

    def line(self, line: Hashable, start: int = 0) -> Iterator[tuple[int, Entry]]:
        """Index and entry of the waiting jobs of one line, from index `start`."""
        entries = self._lines[line]
        for index in range(start, len(entries)):
            if self._stands(entries[index]):
                yield index, entries[index]

    def holders(self) -> list[JobView]:
        """The jobs that hold resources, in order of submission."""
        return sorted((self._view.jobs[job_id] for job_id in self._holding), key=lambda job: job.order)

    def scan(self, place: Callable[[JobView], Allocation | None]) -> Scan:
        """Tries to place the jobs in order; a line ends at its first job that doesn't fit."""
        heads = [(entry, index, line) for line in self._lines for index, entry in islice(self.line(line), 1)]
        heapify(heads)  # entries differ in their job ids, so indices and lines are never compared
        starts: dict[str, Allocation] = {}
        blocked: list[JobView] = []
        while heads:
            entry, index, line = heads[0]
            job = self._view.jobs[entry[3]]
            allocation = place(job)
            follower = None
            if allocation is None:
                blocked.append(job)
            else:
                starts[job.job_id] = allocation
                follower = next(self.line(line, index + 1), None)
            if follower:
                heapreplace(heads, (follower[1], follower[0], line))
            else:
                heappop(heads)
        return Scan(starts, blocked)

    def memory(self) -> Lines:
        """The state for the next event."""
        return Lines(self._lines, self._holding, self.space)

    def _follow(self, old: Lines, changed: Iterable[str]) -> None:
        """Reads the jobs in `changed` from the view; all others stay as they were."""
        jobs = [job for job_id in changed if (job := self._view.jobs.get(job_id)) is not None]
        waits = [job for job in jobs if job.queued]
        holds = [job for job in jobs if not job.queued]
        self._lines = dict(old.lines)
        for line in {self._order.line(self._view, job) for job in holds}:
            self._trim(line)
        self._join(waits)
        self._holding = old.holding.difference(changed).union(job.job_id for job in holds)

    def _trim(self, line: Hashable) -> None:
        """Drops the entries at the front of a line whose jobs have left."""
        head = next(self.line(line), None) if line in self._lines else None
        if head is None:
            self._lines.pop(line, None)
        elif head[0]:
            self._lines[line] = self._lines[line][head[0] :]

    def _join(self, jobs: list[JobView]) -> None:
        joining: dict[Hashable, list[Entry]] = {}
        for job in jobs:
            joining.setdefault(self._order.line(self._view, job), []).append(self._entry(job))
        for line, entries in joining.items():
            self._lines[line] = _merged(self._lines.get(line, []), entries)

    def _entry(self, job: JobView) -> Entry:
        return (self._order.rank(self._view, job), job.submit_s, job.row, job.job_id, job.queued_since_s)

    def _stands(self, entry: Entry) -> bool:
        job = self._view.jobs.get(entry[3])
        return job is not None and job.queued and job.queued_since_s == entry[4]


@dataclass(frozen=True, slots=True)
class Scan:
    """Result of a scan: allocations of jobs to start, and the head of each line that doesn't fit, in order of rank."""

    starts: dict[str, Allocation]
    blocked: list[JobView]


def _merged(line: list[Entry], entries: list[Entry]) -> list[Entry]:
    if len(entries) > 8:
        return sorted({*line, *entries})
    merged = list(line)
    for entry in entries:
        at = bisect_left(merged, entry)
        if merged[at : at + 1] != [entry]:
            insort(merged, entry)
    return merged


def wants(view: ClusterView, job: JobView) -> str:
    """A job's demand as text, such as `2 GPUs and 8 CPUs on one node`."""
    wanted = main_configuration(view, job)
    cpus = f"{wanted.cpu_milli / 1000:g} CPUs"
    where = "on one node" if wanted.min_tasks == 1 else f"on each of {wanted.min_tasks} nodes"
    return f"{wanted.gpus} GPUs and {cpus} {where}" if wanted.on_gpu else f"{cpus} {where}"


def answer(
    view: ClusterView, waiting: Waiting, scan: Scan, why: str, *, stopped: Mapping[str, str] | None = None
) -> Plan:
    """The next plan, with a Lines as state. `why`: reason of all starts; `stopped`: job id -> reason of its stop."""
    stopped = stopped or {}
    reasons = dict.fromkeys(scan.starts, why) | dict(stopped)
    if scan.blocked:
        head = scan.blocked[0]
        reasons[head.job_id] = f"first in line, but no room for {wants(view, head)}"
    return view.plan.evolve(
        start=scan.starts,
        stop=stopped,
        state=waiting.memory(),
        reasons=reasons,
    )
