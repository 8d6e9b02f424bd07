"""Runs jobs in an order that is new at each decision: a waiting job takes the devices of running jobs that come later in it."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from scheduler_sims.interface.plan import Allocation, Plan
from scheduler_sims.interface.view import ClusterView, JobView, Phase
from scheduler_sims.policies.placing import FreeSpace, main_configuration
from scheduler_sims.policies.preempting import Ranks, Room
from scheduler_sims.policies.waiting import wants

_SAME_DECISION = frozenset({"stopped", "retry"})
"""Events that follow from the last decision and call for no other one."""


def decides(view: ClusterView) -> bool:
    """Whether something happened that calls for another order: not only that stopped jobs have released their devices."""
    return not view.triggers <= _SAME_DECISION


def in_order(view: ClusterView, order: Sequence[JobView], why: str, *, state: object = None) -> Plan:
    """The next plan, by a backfill scan over `order`, which has all jobs that may run. `why`: the reason of starts.

    Running jobs never move. Unless the view `decides`, free devices are filled and no job is stopped.
    """
    position = {job.job_id: float(number) for number, job in enumerate(order, 1)}
    holders = view.holding()
    running = {job.job_id: position.get(job.job_id, inf) for job in holders if job.phase is not Phase.STOPPING}
    room = Room(FreeSpace.now(view), holders, Ranks(running))
    above = 0.0 if decides(view) else inf
    starts: dict[str, Allocation] = {}
    reasons: dict[str, str] = {}
    for job in order:
        if not job.queued:
            continue
        allocation = room.place(main_configuration(view, job), max(above, position[job.job_id]))
        if allocation is not None:
            starts[job.job_id] = allocation
            reasons[job.job_id] = why
        else:
            reasons.setdefault(job.job_id, f"no room for {wants(view, job)} beside the jobs before it")
    stops = {job.job_id: "stopped: jobs that go before it take its devices" for job in room.stopped}
    return view.plan.evolve(start=starts, stop=stops, state=state, reasons={**reasons, **stops})
