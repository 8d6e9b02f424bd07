"""GPU-proportional allocation: the baseline of Synergy, as schedulers do it that only consider GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scheduler_sims.policies.synergy.servers import Demand, Server, fullest_first, with_room


def proportional(servers: Sequence[Server], demands: Iterable[Demand]) -> None:
    """Each job gets the CPUs and memory in proportion to its GPUs; a job that doesn't fit waits for the next round."""
    for demand in with_room(servers, demands):
        for server in fullest_first(servers, demand):
            if server.fits(demand, share := demand.shares(server).proportional):
                server.give(demand, share)
                break
