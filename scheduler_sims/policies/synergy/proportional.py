"""GPU-proportional allocation: the baseline of Synergy, as schedulers do it that only consider GPUs."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from scheduler_sims.policies.synergy.servers import Demand, Servers

_proportional = attrgetter("proportional")


def proportional(servers: Servers, demands: Iterable[Demand]) -> None:
    """Each job gets the CPUs and memory in proportion to its GPUs; a job that doesn't fit waits for the next round."""
    for demand in servers.with_room(demands):
        servers.place(demand, _proportional)
