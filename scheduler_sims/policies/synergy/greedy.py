"""Synergy-GREEDY: everybody gets what is best for them while there is any, so GPUs are left without CPUs to feed them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scheduler_sims.policies.synergy.servers import Demand, Server


def greedy(servers: Sequence[Server], demands: Iterable[Demand]) -> None:
    """Each job gets its ideal on the first server that has it; one for which no server has it waits for a round."""
    for demand in demands:
        for server in servers:
            if server.fits(demand, demand.ideal(server)):
                server.give(demand, demand.ideal(server))
                break
