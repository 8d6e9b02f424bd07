"""Synergy-GREEDY: each job gets its ideal CPUs and memory while they last, which leaves GPUs without CPUs."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler_sims.policies.synergy.servers import Demand, Servers


def greedy(servers: Servers, demands: Iterable[Demand]) -> None:
    """Each job gets its ideal share on the first server that has it, else it waits for the next round."""
    for demand in servers.with_room(demands):
        for server in servers.with_gpus(demand):
            if server.has(share := demand.shares(server).ideal) and server.suits(demand):
                servers.give(server, demand, share)
                break
