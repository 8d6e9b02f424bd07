"""Runs the jobs of least rank: a waiting job takes the devices of running jobs of larger rank, and of no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from scheduler_sims.interface.plan import Plan
from scheduler_sims.interface.view import ClusterView, JobView, Phase
from scheduler_sims.policies.placing import main_configuration
from scheduler_sims.policies.preempting import Ranks, Room
from scheduler_sims.policies.waiting import Lines, Order, Waiting, answer

Rank = Callable[[ClusterView, JobView], float]
"""The rank of a job; smaller first. It may only fall while the job runs, and stays as it is while the job waits."""


@dataclass(frozen=True, slots=True)
class _Memory:
    """`at_most`: the rank of each running job when it was last computed, an upper bound of the present one."""

    lines: Lines | None
    at_most: Mapping[str, float]


def least_first(view: ClusterView, rank: Rank, why: str) -> Plan:
    """The next plan, by a backfill scan in order of `rank`; on a tie the running job stays. `why`: the reason of starts.

    Ranks of running jobs are computed where they matter, since asking for the progress of each at each event costs more than
    the rest.
    """
    memory: _Memory = view.state or _Memory(None, {})
    waiting = Waiting(view, memory.lines, Order(rank))
    holders = waiting.holders()
    running = [job for job in holders if job.phase is not Phase.STOPPING]
    known = {job_id: bound for job_id, bound in memory.at_most.items() if job_id not in view.changes}
    at_most = {job.job_id: known[job.job_id] if job.job_id in known else rank(view, job) for job in running}
    room = Room(waiting.space, holders, Ranks(at_most, lambda job: rank(view, job)))
    scan = waiting.scan(lambda job: room.place(main_configuration(view, job), rank(view, job)))
    stopped = {job.job_id: "stopped: jobs that go before it take its devices" for job in room.stopped}
    plan = answer(view, waiting, scan, why, stopped=stopped)
    return replace(plan, state=_Memory(plan.state, at_most))
