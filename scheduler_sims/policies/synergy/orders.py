"""The order of jobs in a round: FIFO, LAS or SRTF. Smaller ranks first; ties: order of submission."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from scheduler_sims.interface.view import ClusterView, JobView
from scheduler_sims.policies.synergy.servers import Demand, Server


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


@dataclass(frozen=True, slots=True)
class Order:
    """`rank`: smaller first. `selects`: the jobs of a round are chosen by GPUs alone, before CPUs and memory are divided, and
    jobs with more GPUs are packed first; otherwise jobs are packed in order of rank.

    (In Synergy's simulator LAS selects, FIFO and SRTF don't.)
    """

    rank: Callable[[Standing, Demand], float]
    needs_estimates: bool = False
    selects: bool = False

    def round(self, standing: Standing, jobs: list[JobView], *, largest_first: bool) -> list[Demand]:
        """The jobs to pack, in order. `largest_first`: selected jobs are packed in order of their GPUs."""
        demands = [Demand.of(standing.view, job) for job in jobs]
        ranked = sorted(demands, key=lambda demand: (self.rank(standing, demand), demand.job.order))
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
