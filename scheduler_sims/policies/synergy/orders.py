"""The order of jobs in a round: FIFO, LAS or SRTF. Smaller ranks first; ties: order of submission."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from scheduler_sims.interface.view import ClusterView
from scheduler_sims.policies.synergy.servers import Demand, Kind, Server, Shares


@dataclass(frozen=True, slots=True)
class Standing:
    """Input of an order. `rounds`: number of rounds each job has had; `proportional`: whether shares are proportional."""

    view: ClusterView
    servers: tuple[Server, ...]
    rounds: Mapping[str, int] = field(default_factory=dict)
    proportional: bool = False


def fifo(_standing: Standing, _demand: Demand) -> float:
    """Order of submission: all ranks are equal."""
    return 0.0


def las(standing: Standing, demand: Demand) -> float:
    """Least attained service: rounds times GPUs."""
    return standing.rounds.get(demand.job.job_id, 0) * demand.gpus


def srtf(standing: Standing, demand: Demand) -> float:
    """Shortest remaining time: at the speed of the last round if the job ran, else at the best possible speed.

    Synergy's simulator does the same, by sorting before it resets the speeds of the last round.
    """
    job, view = demand.job, standing.view
    allocation = job.allocation
    if allocation is None:
        server = next((s for s in standing.servers if s.suits(demand)), standing.servers[0])
        shares = demand.shares(server)
        share = shares.proportional if standing.proportional else shares.ideal
        allocation = demand.allocation(server.node, share)
    return (job.steps_total - view.steps_done(job)) / view.estimates.rate(job, allocation)


@dataclass(slots=True)
class Queue:
    """The demands of all jobs in the order of a policy, handed on from round to round.

    `changed`: jobs to read from the view. `shares`: of all kinds of jobs.
    """

    demands: dict[str, Demand] = field(default_factory=dict)
    keys: dict[str, _Key] = field(default_factory=dict)
    ordered: list[_Key] = field(default_factory=list)
    changed: set[str] = field(default_factory=set)
    shares: dict[Kind, dict[tuple[int, int, int], Shares]] = field(default_factory=dict)

    def follow(self, standing: Standing, rank: Callable[[Standing, Demand], float], held: Iterable[str]) -> None:
        """Read the changed jobs, and rank them and `held` again: the rank of a job that waits doesn't change."""
        view = standing.view
        for job_id in self.changed.difference(view.jobs):
            self.demands.pop(job_id, None)
            self._leave(job_id)
        present = [view.jobs[job_id] for job_id in self.changed.intersection(view.jobs)]
        for job in sorted(present, key=lambda job: job.order):
            old = self.demands.get(job.job_id)
            same = old is not None and old.job.configurations == job.configurations
            self.demands[job.job_id] = (
                old.of_view(job) if old is not None and same else Demand.of(view, job, self.shares)
            )
        ranked = {job_id for job_id in (*self.changed, *held) if job_id in self.demands}
        self.changed.clear()
        keys = [(job_id, self._key(standing, rank, job_id)) for job_id in ranked]
        moved = [(job_id, key) for job_id, key in keys if self.keys.get(job_id) != key]
        if len(moved) > _MANY:
            self.keys.update(moved)
            self.ordered = sorted(self.keys.values())
            return
        for job_id, key in moved:
            self._leave(job_id)
            self.keys[job_id] = key
            insort(self.ordered, key)

    def demand(self, view: ClusterView, job_id: str) -> Demand:
        """The demand of a job, which a queue that is made within a round doesn't have yet."""
        return self.demands.get(job_id) or Demand.of(view, view.jobs[job_id], self.shares)

    def _key(self, standing: Standing, rank: Callable[[Standing, Demand], float], job_id: str) -> _Key:
        demand = self.demands[job_id]
        return (rank(standing, demand), *demand.job.order, job_id)

    def _leave(self, job_id: str) -> None:
        key = self.keys.pop(job_id, None)
        if key is not None:
            del self.ordered[bisect_left(self.ordered, key)]


_Key = tuple[float, float, int, str]
"""Rank, submit time, row, job id."""
_MANY = 200
"""So many jobs that moved are sorted faster than inserted one by one."""


@dataclass(frozen=True, slots=True)
class Order:
    """`rank`: smaller first. `selects`: the jobs of a round are chosen by GPUs alone, before CPUs and memory are divided, and
    jobs with more GPUs are packed first; otherwise jobs are packed in order of rank.

    (In Synergy's simulator LAS selects, FIFO and SRTF don't.)
    """

    rank: Callable[[Standing, Demand], float]
    needs_estimates: bool = False
    selects: bool = False

    def round(self, standing: Standing, queue: Queue, *, largest_first: bool) -> list[Demand]:
        """The jobs of `queue` to pack, in order. `largest_first`: selected jobs are packed in order of their GPUs."""
        ranked = [queue.demands[key[3]] for key in queue.ordered]
        if not self.selects:
            return ranked
        free = sum(server.free_gpus for server in standing.servers)
        selected = []
        for demand in ranked:
            if demand.gpus <= free:
                selected.append(demand)
                free -= demand.gpus
        return sorted(selected, key=lambda demand: -demand.gpus) if largest_first else selected


ORDERS: Mapping[str, Order] = {
    "fifo": Order(fifo),
    "las": Order(las, selects=True),
    "srtf": Order(srtf, needs_estimates=True),
}
