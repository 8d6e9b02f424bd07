"""Synergy-TUNE: each job gets its ideal share, as long as no job is slower than with its proportional share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from emulator_runtime.domain.sensitivity import HostShare
from scheduler_sims.policies.synergy.servers import Demand, Grant, Server, Shares, fullest_first, with_gpus, with_room

_ideal, _modest = attrgetter("ideal"), attrgetter("modest")


def tune(servers: Sequence[Server], demands: Iterable[Demand]) -> None:
    """The ideal share first; else the proportional one; else jobs on a server with free GPUs return what exceeds theirs.

    (Mohan et al., OSDI 2022, section 4.2.) A job that needs less than its proportional share of a resource gets only what it
    needs. A job for which no server has enough GPUs waits for the next round.
    """
    for demand in with_room(servers, demands):
        _ = _place(servers, demand, _ideal) or _place(servers, demand, _modest) or _push(servers, demand)


def _place(servers: Sequence[Server], demand: Demand, share: Callable[[Shares], HostShare]) -> bool:
    for server in fullest_first(servers, demand):
        if server.fits(demand, host := share(demand.shares(server))):
            server.give(demand, host)
            return True
    return False


def _push(servers: Sequence[Server], demand: Demand) -> bool:
    """Makes room on a server with enough free GPUs: the fullest for one GPU, else the first (as in Synergy)."""
    candidates = fullest_first(servers, demand) if demand.gpus == 1 else with_gpus(servers, demand)
    server = next((server for server in candidates if server.suits(demand)), None)
    if server is None:
        return False
    _make_room(server, demand.shares(server).modest)
    return _place([server], demand, _modest)


def _make_room(server: Server, wanted: HostShare) -> None:
    """Reduces jobs to their proportional shares, in order of CPUs per GPU (largest first), until `wanted` is free."""
    for grant in sorted(server.grants, key=_cpus_and_memory_per_gpu, reverse=True):
        if server.free_cpu_milli >= wanted.cpu_milli and server.free_memory_bytes >= wanted.memory_bytes:
            return
        server.shrink(grant, grant.demand.shares(server).modest)


def _cpus_and_memory_per_gpu(grant: Grant) -> tuple[float, float]:
    gpus = max(1, grant.demand.gpus)
    return grant.host.cpu_milli / gpus, grant.host.memory_bytes / gpus
