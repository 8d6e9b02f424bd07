"""The waiting jobs in a policy's order, kept sorted from one event to the next.

Sorting all waiting jobs at each event makes long workloads quadratic. Here the order is handed on in `Plan.state`, and an event
touches only the jobs in `view.changes`. Jobs with equal demands form one line: if the head of a line doesn't fit, no job
behind it fits, so a backfill scan costs one attempt per line, not per job.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from math import isfinite

from emulator_runtime.domain.errors import PolicyError
from scheduler_sims.interface.handed import Handed, taken
from scheduler_sims.interface.plan import Allocation, Plan
from scheduler_sims.interface.view import ClusterView, JobView
from scheduler_sims.policies.placing import FreeSpace, main_configuration

Entry = tuple[float, float, int, str, float]
"""A waiting job: rank (smaller first; constant while the job waits), submit time, row, job id, time of queueing."""


def same_needs(view: ClusterView, job: JobView) -> Hashable:
    """The line of a job in a backfill scan: of jobs with equal demands either all fit or none."""
    c = main_configuration(view, job)
    return (c.gpus, c.cpu_milli, c.memory_bytes, c.gpu_types, c.device_memory_bytes, c.min_tasks, c.parallelism.tensor)


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


@dataclass(slots=True)
class _Line:
    """Entries in order, from index `head` on. Some may be of jobs that have left; readers skip them."""

    entries: list[Entry] = field(default_factory=list)
    head: int = 0

    def join(self, entries: list[Entry]) -> None:
        """Adds entries that aren't there."""
        if len(entries) > _FEW:
            self.entries = sorted({*self.entries[self.head :], *entries})
            self.head = 0
            return
        for entry in entries:
            at = bisect_left(self.entries, entry, self.head)
            if self.entries[at : at + 1] != [entry]:
                self.entries.insert(at, entry)

    def forward(self, head: int) -> None:
        """The entries before index `head` are of jobs that have left."""
        self.head = head
        if head > _FEW and head > len(self.entries) // 2:
            del self.entries[:head]
            self.head = 0


_FEW = 64


@dataclass(slots=True)
class _Book:
    """What is handed on from plan to plan. `entries`: the valid entry of each waiting job, with its line; any other entry of a
    line is of a job that has left. `holding`: jobs with resources. `space`: free capacity at the last plan."""

    space: FreeSpace
    lines: dict[Hashable, _Line] = field(default_factory=dict)
    entries: dict[str, tuple[Hashable, Entry]] = field(default_factory=dict)
    holding: set[str] = field(default_factory=set)


class Lines(Handed[_Book]):
    """The book of waiting jobs in a policy's state."""

    __slots__ = ()


class Waiting:
    """The waiting jobs of one view in the order of one policy. `space`: free capacity, which the caller fills."""

    def __init__(self, view: ClusterView, old: Lines | None, order: Order) -> None:
        self._view = view
        self._order = order
        # Other nodes: other configurations may fit, so ranks change.
        book = None if "node" in view.triggers else taken(old)
        if book is None:
            self._book = _Book(FreeSpace.now(view))
            self._follow(view.jobs)
        else:
            self._book = book
            book.space = book.space.follow(view)
            self._follow(view.changes)
        self.space = self._book.space

    def lines(self) -> Iterable[Hashable]:
        """All lines, possibly with entries of jobs that have left."""
        return self._book.lines.keys()

    def line(self, line: Hashable, start: int = 0) -> Iterator[tuple[int, Entry]]:
        """Index and entry of the waiting jobs of one line, from index `start`."""
        found = self._book.lines[line]
        valid = self._book.entries
        for index in range(max(start, found.head), len(found.entries)):
            entry = found.entries[index]
            if (stands := valid.get(entry[3])) is not None and stands[1] == entry:
                yield index, entry

    def rank(self, job: JobView) -> float:
        """The rank of a waiting job, which was computed when it began to wait."""
        return self._book.entries[job.job_id][1][0]

    def holders(self) -> list[JobView]:
        """The jobs that hold resources, in order of submission."""
        holding = (job for job_id in self._book.holding if (job := self._view.jobs.get(job_id)) is not None)
        return sorted(holding, key=lambda job: job.order)

    def scan(self, place: Callable[[JobView], Allocation | None]) -> Scan:
        """Tries to place the jobs in order; a line ends at its first job that doesn't fit."""
        heads = self._heads()
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
        return Lines([self._book])

    def _heads(self) -> list[tuple[Entry, int, Hashable]]:
        """The first waiting job of each line; lines without one are dropped."""
        heads = []
        lines, valid = self._book.lines, self._book.entries
        for key in list(lines):
            line = lines[key]
            for index in range(line.head, len(line.entries)):
                entry = line.entries[index]
                if (stands := valid.get(entry[3])) is not None and stands[1] == entry:
                    if index > line.head:
                        line.forward(index)
                    heads.append((entry, line.head, key))
                    break
            else:
                del lines[key]
        return heads

    def _follow(self, changed: Iterable[str]) -> None:
        """Reads the jobs in `changed` from the view; all others stay as they were."""
        book, jobs = self._book, self._view.jobs
        joining: dict[Hashable, list[Entry]] = {}
        for job_id in changed:
            job = jobs.get(job_id)
            if job is not None and job.queued:
                book.holding.discard(job_id)
                self._join(job, joining)
                continue
            book.entries.pop(job_id, None)
            if job is None:
                book.holding.discard(job_id)
            else:
                book.holding.add(job_id)
        for key, entries in joining.items():
            book.lines.setdefault(key, _Line()).join(entries)

    def _join(self, job: JobView, joining: dict[Hashable, list[Entry]]) -> None:
        """A job that stands there already may have another rank now, but not the same entry twice."""
        key = self._order.line(self._view, job)
        entry = (self._order.rank(self._view, job), job.submit_s, job.row, job.job_id, job.queued_since_s)
        if self._book.entries.get(job.job_id) != (key, entry):
            self._book.entries[job.job_id] = (key, entry)
            joining.setdefault(key, []).append(entry)


@dataclass(frozen=True, slots=True)
class Scan:
    """Result of a scan: allocations of jobs to start, and the head of each line that doesn't fit, in order of rank."""

    starts: dict[str, Allocation]
    blocked: list[JobView]


def wants(view: ClusterView, job: JobView) -> str:
    """A job's demand as text, such as `2 GPUs and 8 CPUs on one node`."""
    wanted = main_configuration(view, job)
    cpus = f"{wanted.cpu_milli / 1000:g} CPUs"
    where = "on one node" if wanted.min_tasks == 1 else f"on each of {wanted.min_tasks} nodes"
    return f"{wanted.gpus} GPUs and {cpus} {where}" if wanted.on_gpu else f"{cpus} {where}"


def answer(
    view: ClusterView,
    waiting: Waiting,
    scan: Scan,
    why: str,
    *,
    stopped: Mapping[str, str] | None = None,
    wake_at_s: float | None = None,
    state: object = None,
) -> Plan:
    """The next plan. `why`: reason of all starts; `stopped`: job id -> reason of its stop; `state`: None for a Lines."""
    stopped = stopped or {}
    reasons = dict.fromkeys(scan.starts, why) | dict(stopped)
    if scan.blocked:
        head = scan.blocked[0]
        reasons[head.job_id] = f"first in line, but no room for {wants(view, head)}"
    return view.plan.evolve(
        start=scan.starts,
        stop=stopped,
        wake_at_s=wake_at_s,
        state=waiting.memory() if state is None else state,
        reasons=reasons,
    )
