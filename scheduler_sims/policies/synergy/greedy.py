"""Synergy-GREEDY: everybody gets what is best for them while there is any, so GPUs are left without CPUs to feed them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scheduler_sims.policies.synergy.servers import Demand, Server, with_gpus


def greedy(servers: Sequence[Server], demands: Iterable[Demand]) -> None:
    """Each job gets its ideal on the first server that has it; one for which no server has it waits for a round."""
    for demand in demands:
        for server in with_gpus(servers, demand):
            if server.fits(demand, share := demand.shares(server).ideal):
                server.give(demand, share)
                break
