"""Synergy-TUNE: each job gets its ideal share, as long as no job is slower than with its proportional share."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from emulator_runtime.domain.sensitivity import HostShare
from scheduler_sims.policies.synergy.servers import Demand, Grant, Server, Servers

_ideal, _modest = attrgetter("ideal"), attrgetter("modest")


def tune(servers: Servers, demands: Iterable[Demand]) -> None:
    """The ideal share first; else the proportional one; else jobs on a server with free GPUs return what exceeds theirs.

    (Mohan et al., OSDI 2022, section 4.2.) A job that needs less than its proportional share of a resource gets only what it
    needs. A job for which no server has enough GPUs waits for the next round.
    """
    for demand in servers.with_room(demands):
        if not servers.place(demand, _ideal) and not servers.place(demand, _modest):
            _push(servers, demand)


def _push(servers: Servers, demand: Demand) -> None:
    """Makes room on a server with enough free GPUs: the fullest for one GPU, else the first (as in Synergy)."""
    candidates = servers.fullest_first(demand) if demand.gpus == 1 else servers.with_gpus(demand)
    server = next((server for server in candidates if server.suits(demand)), None)
    if server is None:
        return
    modest = demand.shares(server).modest
    _make_room(servers, server, modest)
    if server.has(modest):
        servers.give(server, demand, modest)


def _make_room(servers: Servers, server: Server, wanted: HostShare) -> None:
    """Reduces jobs to their proportional shares, in order of CPUs per GPU (largest first), until `wanted` is free."""
    for grant in sorted(server.grants, key=_cpus_and_memory_per_gpu, reverse=True):
        if server.has(wanted):
            return
        servers.shrink(server, grant, grant.demand.shares(server).modest)


def _cpus_and_memory_per_gpu(grant: Grant) -> tuple[float, float]:
    gpus = max(1, grant.demand.gpus)
    return grant.host.cpu_milli / gpus, grant.host.memory_bytes / gpus
