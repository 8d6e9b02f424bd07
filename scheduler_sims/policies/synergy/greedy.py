"""Synergy-GREEDY: each job gets its ideal CPUs and memory while they last, which leaves GPUs without CPUs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scheduler_sims.policies.synergy.servers import Demand, Server, with_gpus, with_room


def greedy(servers: Sequence[Server], demands: Iterable[Demand]) -> None:
    """Each job gets its ideal share on the first server that has it, else it waits for the next round."""
    for demand in with_room(servers, demands):
        for server in with_gpus(servers, demand):
            if server.fits(demand, share := demand.shares(server).ideal):
                server.give(demand, share)
                break
