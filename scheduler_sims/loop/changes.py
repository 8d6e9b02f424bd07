"""The difference between two plans: jobs to stop, jobs to start, and jobs whose CPUs and memory change. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    """The actions that lead from the current plan to the next one: stops, starts and resizes, by job id."""

    stops: list[str]
    starts: dict[str, Allocation] = field(default_factory=dict)
    resizes: dict[str, Allocation] = field(default_factory=dict)


def difference(base: Plan, plan: Plan) -> Change:
    """The actions from `base` to `plan`, in the order of `plan`."""
    present = base.started if base.base is None else base.allocations
    if plan.base is base:
        wanted, gone = plan.started, _in_order(present, plan.stopped)
    elif plan.base is None:
        wanted, gone = plan.started, [job for job in present if job not in plan.started]
    else:
        wanted = plan.allocations
        gone = [job for job in present if job not in wanted]
    change = Change(stops=gone)
    for job_id, allocation in wanted.items():
        has = present.get(job_id)
        if has is None:
            change.starts[job_id] = allocation
        elif not allocation.same_place(has):
            change.stops.append(job_id)  # a move: stopped here, started there by a later plan
        elif not allocation.same_division(has):
            change.resizes[job_id] = allocation
    return change


def _in_order(allocations: Mapping[str, Allocation], job_ids: Iterable[str]) -> list[str]:
    """Those of the jobs that have an allocation, in the order of the allocations."""
    present = [job_id for job_id in job_ids if job_id in allocations]
    if len(present) < 2:
        return present
    gone = set(present)
    return [job_id for job_id in allocations if job_id in gone]
