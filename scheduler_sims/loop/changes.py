"""The difference between two plans: who stops, who starts, whose CPUs and memory change. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler_sims.interface.plan import Allocation, Plan


@dataclass(frozen=True, slots=True)
class Division:
    """A running job's CPUs and host memory, before and after."""

    job_id: str
    old: Allocation
    new: Allocation


@dataclass(frozen=True, slots=True)
class Change:
    """From the plan in force to the next one: who stops, who starts where, and whose CPUs and memory change."""

    stops: list[str]
    starts: dict[str, Allocation] = field(default_factory=dict)
    resizes: dict[str, Allocation] = field(default_factory=dict)


def difference(base: Plan, plan: Plan) -> Change:
    """What to do, in the plan's order."""
    if plan.base is base:
        wanted, gone = dict(plan.started), [job for job in base.allocations if job in plan.stopped]
    elif plan.base is None:
        wanted, gone = dict(plan.started), [job for job in base.allocations if job not in plan.started]
    else:
        wanted = dict(plan.allocations)
        gone = [job for job in base.allocations if job not in wanted]
    change = Change(stops=gone)
    for job_id, allocation in wanted.items():
        has = base.allocations.get(job_id)
        if has is None:
            change.starts[job_id] = allocation
        elif not allocation.same_place(has):
            change.stops.append(job_id)  # a move: stopped here, started there by a later plan
        elif not allocation.same_division(has):
            change.resizes[job_id] = allocation
    return change
