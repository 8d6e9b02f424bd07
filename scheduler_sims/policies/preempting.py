"""Preemption: stop as few running jobs as possible, lowest priority first, without moving any job.

The textbook way (fill the empty cluster anew in order of priority) may give a running job's devices to another job although
both fit, and every such move costs a checkpoint and a restart. Here running jobs keep their devices, and a waiting job takes
the devices of jobs with a lower priority.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import inf

from emulator_runtime.domain.job import Configuration
from scheduler_sims.interface.plan import Allocation
from scheduler_sims.interface.view import JobView
from scheduler_sims.policies.departures import FIRST, LAST, Departures, Hope, Key, held, leaves, position
from scheduler_sims.policies.placing import FreeSpace

_PART = 3
"""Nodes are few if they are less than a third of those with running jobs."""
_LONG = 20_000
"""Of a list of additions and releases, which is then begun anew."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """Ranks of running jobs: the largest rank is preempted first (ties: the job submitted last).

    `at_most` has a rank for each job that may be preempted. With `refine` it is an upper bound, and `refine` computes the
    exact rank, only for jobs where it matters; `at_most` then holds the exact rank.
    """

    at_most: dict[str, float]
    refine: Callable[[JobView], float] | None = None


class Room:
    """Free capacity, plus the capacity of stopping and of preemptible jobs. `stopped` collects the jobs to preempt."""

    def __init__(self, space: FreeSpace, holders: Iterable[JobView], ranks: Ranks) -> None:
        departures = Departures()
        for job in holders:
            rank = inf if leaves(job) else ranks.at_most.get(job.job_id)
            if rank is not None:
                departures.put(job, rank)
        self._begin(space, departures, ranks.refine)

    @classmethod
    def kept(cls, space: FreeSpace, departures: Departures, refine: Callable[[JobView], float] | None = None) -> Room:
        """Room for one plan with departures that are handed on; `finish` leaves them as they were but for refined ranks."""
        room = cls.__new__(cls)
        room._begin(space, departures, refine)
        return room

    def _begin(self, space: FreeSpace, departures: Departures, refine: Callable[[JobView], float] | None) -> None:
        self._space, self._departures, self._refine = space, departures, refine
        if departures.space is not space or len(departures.added) + len(space.freed) > _LONG:
            departures.space = space  # what is known of another space means nothing here
            departures.hopes.clear()
            departures.added.clear()
            space.freed.clear()
        self._exact: dict[str, Key] = {}
        """Keys with ranks that this plan has computed."""
        self._refined: list[str] = []
        """The jobs of which `departures` doesn't have these keys yet."""
        self._gone: list[tuple[JobView, float]] = []
        self._gone_from: dict[str, list[tuple[float, int, int]]] = {}
        """By node: the places, in order of submission, of those jobs."""
        self.stopped: list[JobView] = []

    def finish(self) -> None:
        """Put back the jobs whose capacity was used: the next view shows what became of them."""
        for job, rank in self._gone:
            self._departures.put(job, rank)
        self._gone.clear()
        self._gone_from.clear()

    def rank(self, job_id: str) -> float:
        """The exact rank of a job in `stopped`."""
        return self._exact[job_id][0]

    def place(self, configuration: Configuration, above: float) -> Allocation | None:
        """Places `configuration` in free capacity, else on the node with the cheapest preemption; None if there is none.

        Only jobs with a rank above `above` are preempted. The cheapest node is the one where the highest-priority job that
        has to stop has the lowest priority; a node where stopping jobs leave enough capacity costs nothing. The plan may
        name such devices although they are not free yet. For a job of several tasks the whole cluster is treated as one
        node is otherwise.
        """
        allocation = self._space.place(configuration)
        if allocation is not None or self._in_vain(configuration, above):
            return allocation
        if configuration.min_tasks > 1:
            allocation = self._place_gang(configuration, (above, inf, inf))
        else:
            best = self._cheapest(configuration, (above, inf, inf))
            allocation = None if best is None else self._clear(configuration, *best)
        self._keep_exact()
        if allocation is None:
            versions = self._departures.version, self._space.version
            self._departures.failed[configuration] = (above, *versions, self._space)
        return allocation

    def _in_vain(self, configuration: Configuration, above: float) -> bool:
        """Whether the same failed before, and nothing that could help has happened since: ranks only fall."""
        failed = self._departures.failed.get(configuration)
        if failed is None:
            return False
        failed_above, ours, its, space = failed
        same = space is self._space and ours == self._departures.version and its == space.version
        return same and failed_above <= above

    def _cheapest(self, configuration: Configuration, limit: Key) -> tuple[str, list[JobView]] | None:
        """The node with the cheapest preemption of jobs with a key above `limit`, and the jobs that must leave it.

        Nodes are looked at in order of the key of their first job to stop, so that most are never looked at.
        """
        best: tuple[str, list[JobView]] | None = None
        hope, first_limit = self._hope(configuration), limit
        nodes = hope.nodes(limit)
        if not nodes:
            return None
        for node in self._nodes_left(configuration, nodes):
            nodes.discard(node)
            if (leaving := self._leaving(configuration, node, limit, hope)) is not None:
                best, limit = self._first_of(configuration, node, leaving, limit)
                if limit == LAST:
                    return best
        if limit[0] == inf:
            return best
        for node in self._by_key(nodes, limit):
            nodes.discard(node)
            if limit != first_limit and ((top := self._departures.top(node)) is None or top <= limit):
                break  # only a cheaper node could replace the best one
            if (leaving := self._leaving(configuration, node, limit, hope)) is not None:
                best, limit = self._first_of(configuration, node, leaving, limit)
        return best

    def _by_key(self, nodes: set[str], limit: Key) -> Iterator[str]:
        """Those of the nodes that have a job with a key above `limit`, in order of their largest key, the largest first.

        Few nodes are sorted. Of many, one of the first will do, and the jobs in order of their keys lead there.
        """
        departures = self._departures
        if _PART * len(nodes) < len(departures.nodes()):
            keys = [(top, node) for node in nodes if (top := departures.top(node)) is not None and top > limit]
            yield from [node for _, node in sorted(keys, reverse=True)]
            return
        for rank, submit_s, row, job_id in reversed(departures.ranked):
            if (rank, submit_s, row) <= limit:
                return
            for task in held(departures.jobs[job_id]).tasks:
                if task.node in nodes:
                    yield task.node

    def _hope(self, configuration: Configuration) -> Hope:
        departures, freed = self._departures, self._space.freed
        hope = departures.hopes.get(configuration)
        if hope is None:
            hope = departures.hopes[configuration] = Hope()
            hope.renew(departures.nodes())
        else:
            hope.renew((*departures.added[hope.added :], *freed[hope.freed :]))
        hope.added, hope.freed = len(departures.added), len(freed)
        return hope

    def _nodes_left(self, configuration: Configuration, among: set[str]) -> list[str]:
        """Those of the nodes that stopping jobs leave and that may have enough devices, in order of the first job there."""
        space, departures = self._space, self._departures
        names = [
            node
            for node in departures.left
            if node in among and space.may_fit(configuration, node, departures.devices(node))
        ]
        return names if len(names) < 2 else sorted(names, key=self._first)

    def _first(self, node: str) -> tuple[float, int, int]:
        """The tie-break of nodes: the first job there in order of submission, and the position of the node in it."""
        first, gone = self._departures.first(node), self._gone_from.get(node)
        if gone is None:
            assert first is not None
            return first
        return min(gone if first is None else [first, *gone])

    def _first_of(
        self, configuration: Configuration, node: str, leaving: list[JobView], limit: Key
    ) -> tuple[tuple[str, list[JobView]], Key]:
        """The best node and its key. A job of several tasks may be the one that decides on several nodes: ties by `_first`."""
        least = self._least(leaving)
        ties = [(node, leaving)]
        deciding = next((job for job in leaving if self._key(job) == least), None) if least != LAST else None
        if deciding is not None and len(held(deciding).tasks) > 1:
            for other in dict.fromkeys(held(deciding).nodes):
                also = None if other == node else self._leaving(configuration, other, limit)
                if also is not None and self._least(also) == least:
                    ties.append((other, also))
        return ties[0] if len(ties) == 1 else min(ties, key=lambda tie: self._first(tie[0])), least

    def _least(self, leaving: list[JobView]) -> Key:
        """The key of the highest-priority job that has to stop."""
        return min([self._key(job) for job in leaving])

    def _leaving(
        self, configuration: Configuration, node: str, limit: Key, hope: Hope | None = None
    ) -> list[JobView] | None:
        """The jobs on `node`, all with a key above `limit`, that must leave for `configuration`; None if that isn't enough.
        Then it is in vain there until something happens on the node."""
        fits = self._space.may_fit(configuration, node, self._departures.devices(node))
        leaving = self._enough_above(configuration, node, limit) if fits else None
        if hope is not None and leaving is None:
            hope.fail(node, limit if fits else FIRST)
        return leaving

    def _enough_above(self, configuration: Configuration, node: str, limit: Key) -> list[JobView] | None:
        stopping = self._departures.leaving
        may = [job for job in self._departures.on(node) if job.job_id in stopping or self._key(job) > limit]
        if not may or not self._enough(configuration, node, may):
            return None
        going = sorted([(self._exact_key(job), job.job_id, job) for job in may])
        leaving: list[JobView] = []
        while going and (going[-1][0] > limit or leaves(going[-1][2])):
            leaving.append(going.pop()[2])
            if len(leaving) == len(may) or self._enough(configuration, node, leaving):
                return self._needed(configuration, node, leaving)
        return None

    def _place_gang(self, configuration: Configuration, limit: Key) -> Allocation | None:
        """Preempts jobs in order of their keys until all tasks fit, except jobs whose departure isn't needed."""
        may = [*self._departures.leaving.values(), *self._departures.above(limit)]
        if not self._enough_everywhere(configuration, may):
            return None
        ranked = ((self._exact_key(job), job.job_id, job) for job in may)
        going = [job for key, _, job in sorted(ranked, reverse=True) if key > limit or leaves(job)]
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
        return self._space.fits_after(configuration, [held(job) for job in leaving])

    def _key(self, job: JobView) -> Key:
        """The key of a job, as far as this plan knows it."""
        return self._exact.get(job.job_id) or self._departures.keys[job.job_id]

    def _exact_key(self, job: JobView) -> Key:
        """The key with the exact rank, which is computed once in a plan."""
        key = self._exact.get(job.job_id)
        if key is None:
            key = self._departures.keys[job.job_id]
            if self._refine is not None and not leaves(job):
                key = (self._refine(job), job.submit_s, job.row)
                self._refined.append(job.job_id)
            self._exact[job.job_id] = key
        return key

    def _keep_exact(self) -> None:
        """Nodes are looked at in order of the bounds, so these change only afterwards."""
        for job_id in self._refined:
            if job_id in self._departures.ranks:
                self._departures.rank(self._departures.jobs[job_id], self._exact[job_id][0])
        self._refined.clear()

    def _needed(self, configuration: Configuration, node: str, leaving: list[JobView]) -> list[JobView]:
        """`leaving` without jobs whose departure isn't needed; jobs of the highest priority are spared first."""
        for job in reversed(leaving[:-1]):  # without the last one it wasn't enough
            others = [other for other in leaving if other is not job]
            if self._enough(configuration, node, others):
                leaving = others
        return leaving

    def _enough(self, configuration: Configuration, node: str, leaving: list[JobView]) -> bool:
        """Whether `configuration` fits on `node` after `leaving` have left."""
        return self._space.fits(configuration, node, self._departures.tasks(node, leaving))

    def _clear(self, configuration: Configuration, node: str, leaving: list[JobView]) -> Allocation | None:
        self._release(leaving)
        return self._space.place(configuration, node=node)

    def _release(self, leaving: list[JobView]) -> None:
        for job in leaving:
            self._space.release(held(job))
            self._gone.append((job, self._key(job)[0]))
            for node in dict.fromkeys(held(job).nodes):
                self._gone_from.setdefault(node, []).append(position(job, node))
            self._departures.drop(job.job_id)
            if not leaves(job):
                self.stopped.append(job)
