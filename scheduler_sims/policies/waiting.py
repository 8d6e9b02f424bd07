"""The waiting jobs in a policy's order, kept from one event to the next.

Sorting all waiting jobs at each event makes long workloads quadratic. Here the order is kept as `Plan.state`, and an
event touches only the jobs in `view.changes`. Jobs that ask for the same thing stand in one line: when the head of a
line has no place, nobody behind it has one, so a backfill scan costs as many looks as there are lines, not jobs.
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
"""A waiting job: rank (smaller is served first; constant while it waits), submit time, row, job id, waiting since."""


def same_needs(view: ClusterView, job: JobView) -> Hashable:
    """The line of a job in a backfill scan: jobs with equal needs have a place, or not, together."""
    c = main_configuration(view, job)
    return (c.gpus, c.cpu_milli, c.memory_bytes, c.gpu_types, c.device_memory_bytes, c.min_tasks)


def one_line(_view: ClusterView, _job: JobView) -> Hashable:
    """All jobs in one line: nobody overtakes."""
    return None


def checked_s(job: JobView, seconds: float) -> float:
    """`seconds` if it is a time that can be ranked. Raises PolicyError that names the job if not."""
    if not isfinite(seconds) or seconds < 0:
        raise PolicyError(f"job {job.job_id!r} has an estimated run time of {seconds} s; it must be finite and >= 0")
    return seconds


@dataclass(frozen=True, slots=True)
class Order:
    """How a policy sorts: the rank of a waiting job, and which jobs stand in one line."""

    rank: Callable[[ClusterView, JobView], float]
    line: Callable[[ClusterView, JobView], Hashable] = same_needs


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """What is remembered between events; never changed once made (and without the view, which would chain all of them).

    A line may still hold entries of jobs that have left it; readers pass over those. `holding`: jobs with resources.
    """

    KEPT: ClassVar[bool] = False
    """Not over a restart of the scheduler: all of it follows from the next view."""

    lines: Mapping[Hashable, list[Entry]]
    holding: frozenset[str]
    space: FreeSpace


class Waiting:
    """The waiting jobs of one view in the order of one policy. `space` is what is free now, to be filled by the caller."""

    def __init__(self, view: ClusterView, old: Lines | None, order: Order) -> None:
        self._view = view
        self._order = order
        self.space = FreeSpace.now(view, old.space if old else None)
        if old is None or "node" in view.triggers:  # other nodes: other configurations may fit, so ranks change
            self._follow(Lines({}, frozenset(), self.space), view.jobs)
        else:
            self._follow(old, view.changes)

    def lines(self) -> Iterable[Hashable]:
        """The lines that may have jobs."""
        return self._lines.keys()

    def line(self, line: Hashable, start: int = 0) -> Iterator[tuple[int, Entry]]:
        """The entries of one line from index `start`, without those of jobs that have left."""
        entries = self._lines[line]
        for index in range(start, len(entries)):
            if self._stands(entries[index]):
                yield index, entries[index]

    def holders(self) -> list[JobView]:
        """The jobs that hold resources, in order of submission."""
        return sorted((self._view.jobs[job_id] for job_id in self._holding), key=lambda job: job.order)

    def scan(self, place: Callable[[JobView], Allocation | None]) -> Scan:
        """Offers a place to the jobs in order; a line is left at the first job of it that gets none."""
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
        """What to remember until the next event."""
        return Lines(self._lines, self._holding, self.space)

    def _follow(self, old: Lines, changed: Iterable[str]) -> None:
        """Takes over the jobs in `changed` from the view, all others as they were."""
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
    """What a scan found: who starts where, and the head of each line that has no place, best first."""

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
    """What a job waits for, in words."""
    wanted = main_configuration(view, job)
    cpus = f"{wanted.cpu_milli / 1000:g} CPUs"
    where = "on one node" if wanted.min_tasks == 1 else f"on each of {wanted.min_tasks} nodes"
    return f"{wanted.gpus} GPUs and {cpus} {where}" if wanted.on_gpu else f"{cpus} {where}"


def answer(
    view: ClusterView, waiting: Waiting, scan: Scan, why: str, *, stopped: Mapping[str, str] | None = None
) -> Plan:
    """The next plan: `why` says in words why jobs start, `stopped` is job id -> why it stops. Its state is a Lines."""
    stopped = stopped or {}
    reasons = dict.fromkeys(scan.starts, why) | dict(stopped)
    if scan.blocked:
        head = scan.blocked[0]
        reasons[head.job_id] = f"first of those that wait: no room for {wants(view, head)}"
    return view.plan.evolve(
        start=scan.starts,
        stop=stopped,
        state=waiting.memory(),
        reasons=reasons,
    )
