"""GPU-proportional allocation: what schedulers do that know of GPUs only, and what Synergy is compared with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scheduler_sims.policies.synergy.servers import Demand, Server, fullest_first


def proportional(servers: Sequence[Server], demands: Iterable[Demand]) -> None:
    """Each job gets the CPUs and memory of its server that go with its GPUs; one that has no place waits for a round."""
    for demand in demands:
        for server in fullest_first(servers, demand):
            if server.fits(demand, share := demand.shares(server).proportional):
                server.give(demand, share)
                break
