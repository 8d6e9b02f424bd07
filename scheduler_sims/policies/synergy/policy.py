"""Synergy's rounds: resources are divided anew every `round_s`; a division holds until the next round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from emulator_runtime.domain.errors import PolicyError, UnknownNameError
from emulator_runtime.domain.units import gib
from scheduler_sims.interface.handed import Handed, taken
from scheduler_sims.interface.plan import Allocation, Plan
from scheduler_sims.interface.rounds import Rounds
from scheduler_sims.interface.view import ClusterView, NodeView
from scheduler_sims.policies.option_values import checked_seconds
from scheduler_sims.policies.synergy.greedy import greedy
from scheduler_sims.policies.synergy.orders import ORDERS, Queue, Standing
from scheduler_sims.policies.synergy.places import Places
from scheduler_sims.policies.synergy.proportional import proportional
from scheduler_sims.policies.synergy.servers import Demand, Server, Servers, grants_of
from scheduler_sims.policies.synergy.staying import settle
from scheduler_sims.policies.synergy.tune import tune

Divide = Callable[[Servers, Iterable[Demand]], None]

ALLOCATIONS: Mapping[str, Divide] = {"proportional": proportional, "greedy": greedy, "tune": tune}

LEAST_ROUND_S = 0.1
"""Each round is one plan; shorter rounds would need millions of plans for a day of jobs."""


@dataclass(frozen=True, slots=True)
class Round:
    """The state: number of the round, its allocations; `given`: rounds that each job has had; `places`: the nodes of its jobs;
    `queue`: the jobs in order, up to date with the last plan. `reasons`: of its allocations that have been tried: most starts are
    tried several times, until the jobs before have stopped."""

    index: int = -1
    allocations: Mapping[str, Allocation] = field(default_factory=dict)
    given: Mapping[str, int] = field(default_factory=dict)
    places: Places | None = field(default=None, compare=False, repr=False)
    queue: Handed[Queue] | None = field(default=None, compare=False, repr=False)
    reasons: Handed[dict[str, str]] | None = field(default=None, compare=False, repr=False)

    def lacks(self, view: ClusterView, job_id: str) -> bool:
        """Whether the job has no place in this round, or has left the system."""
        return job_id not in self.allocations or job_id not in view.jobs


class Synergy:
    """Rounds in which CPUs and host memory are divided by what jobs can use, on top of FIFO, LAS or SRTF.

    Mohan et al., OSDI 2022; details follow its simulator. Each job runs on one node; a job that doesn't fit waits for the
    next round, while later jobs may start. A job that continues in the next round isn't stopped if only its CPUs and memory
    change. Jobs submitted during a round wait until it ends; resources of jobs that end during a round stay idle. The first
    round begins at `first_s` of emulated time. Rounds shorter than LEAST_ROUND_S are refused.
    """

    needs_estimates: bool = False
    preemptive: ClassVar[bool] = True
    one_node: ClassVar[bool] = True
    """Jobs of several nodes are left alone."""

    def __init__(
        self, order: str = "fifo", allocation: str = "tune", round_s: float = 300.0, first_s: float = 0.0
    ) -> None:
        for name, value, known in (("order", order, ORDERS), ("allocation", allocation, ALLOCATIONS)):
            if value not in known:
                raise UnknownNameError(f"synergy: {name}", name, value, known)
        self.order, self.allocation = order, allocation
        self.round_s = checked_seconds("synergy: round_s", round_s, least=LEAST_ROUND_S)
        self.first_s = checked_seconds("synergy: first_s", first_s)
        self.rounds = Rounds(self.round_s, self.first_s)
        self.needs_estimates = ORDERS[order].needs_estimates

    def plan(self, view: ClusterView) -> Plan:
        """A new division when a round begins or nodes change; otherwise the same plan for the remaining jobs."""
        current: Round = view.state if view.state is not None else Round()
        queue = None if "node" in view.triggers else taken(current.queue)
        if queue is None:
            queue = Queue(changed=set(view.jobs))
        queue.changed |= view.changes
        if view.round is None:
            raise PolicyError("synergy needs rounds: a policy that calls it needs its attribute `rounds`, too")
        index, held = view.round.number, view.plan.allocations
        begins = index > current.index or (index >= 0 and "node" in view.triggers)
        if begins:
            current = self._begin(view, current, index, queue)
        places = current.places or Places.of(current.allocations)
        reasons = taken(current.reasons) or {}
        current = replace(current, places=places, queue=Handed([queue]), reasons=Handed([reasons]))
        everything = begins or view.all_is_news
        tried = current.allocations if everything else places.news(view)
        wanted = {job: current.allocations[job] for job in tried if job in view.jobs}
        start = {job: allocation for job, allocation in wanted.items() if not _continues(allocation, held.get(job))}
        # The first plan of a round stops all others, so within it only a job that has changed can be without a place.
        stop = []
        if everything or any(job in held and current.lacks(view, job) for job in view.changes):
            stop = [job for job in held if current.lacks(view, job)]
        for job, allocation in start.items():
            if job not in reasons:
                reasons[job] = _reason(current.index, queue.demand(view, job), view.nodes, allocation)
        away = f"round {current.index}: other jobs go first"
        return view.plan.evolve(
            start=start,
            stop=stop,
            state=current,
            reasons={job: reasons[job] for job in start} | {job: away for job in stop if job in view.jobs},
        )

    def _begin(self, view: ClusterView, last: Round, index: int, queue: Queue) -> Round:
        servers = Servers(map(Server.empty, view.nodes.values()))
        order, proportionally = ORDERS[self.order], self.allocation == "proportional"
        standing = Standing(view, servers.all, last.given, proportionally)
        queue.follow(standing, order.rank, {*last.allocations, *(job.job_id for job in view.holding())})
        demands = order.round(standing, queue, largest_first=self.allocation == "tune")
        ALLOCATIONS[self.allocation](servers, demands)
        given = {job_id: rounds for job_id, rounds in last.given.items() if job_id in view.jobs}
        counted = last.allocations if index == last.index else ()  # nodes changed within the round
        for _, grant in grants_of(servers.all):
            job_id = grant.demand.job.job_id
            given[job_id] = given.get(job_id, 0) + (job_id not in counted)
        return Round(index, settle(servers.all), given)


def _continues(allocation: Allocation, has: Allocation | None) -> bool:
    """Whether the job has this allocation already."""
    if allocation is has:
        return True
    return has is not None and allocation.same_place(has) and allocation.same_division(has)


def _reason(index: int, demand: Demand, nodes: Mapping[str, NodeView], allocation: Allocation) -> str:
    host = allocation.tasks[0].host
    shares = demand.shares(Server.empty(nodes[allocation.nodes[0]]))
    if host.cpu_milli >= shares.ideal.cpu_milli:
        how = "all it can use"
    else:
        how = "the proportional share" if host.cpu_milli == shares.proportional.cpu_milli else "less than it could use"
    return f"round {index}: {host.cpu_milli / 1000:g} CPUs and {gib(host.memory_bytes)} ({how})"
