"""SRTF: shortest remaining time first, optimal for the mean JCT on one machine; shows what preemption can gain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from scheduler_sims.interface.plan import Plan
from scheduler_sims.interface.view import ClusterView, JobView, Phase
from scheduler_sims.policies.placing import main_configuration
from scheduler_sims.policies.preempting import Ranks, Room
from scheduler_sims.policies.waiting import Lines, Order, Waiting, answer, checked_s


@dataclass(frozen=True, slots=True)
class _Memory:
    """`at_most_s`: remaining time of running jobs when it was last computed, an upper bound of the present one."""

    lines: Lines | None
    at_most_s: Mapping[str, float]


class Srtf:
    """The jobs with the shortest estimated remaining time run; strictly shorter jobs preempt longer ones.

    Backfill scan, as in Tiresias' simulator ("shortest"; Gu et al., NSDI 2019), except that running jobs never move: the
    jobs with the longest remaining time are preempted until the shorter job fits. On a tie the running job stays.
    """

    needs_estimates: ClassVar[bool] = True
    preemptive: ClassVar[bool] = True

    def plan(self, view: ClusterView) -> Plan:
        """Starts and stops jobs. Raises PolicyError for an estimate that isn't a finite time."""
        memory: _Memory | None = view.state
        waiting = Waiting(view, memory.lines if memory else None, Order(_remaining_s))
        holders = waiting.holders()
        running = [job for job in holders if job.phase is not Phase.STOPPING]
        left_s = _at_most_s(view, running, memory.at_most_s if memory else {})
        room = Room(waiting.space, holders, Ranks(left_s, lambda job: _remaining_s(view, job)))
        scan = waiting.scan(lambda job: room.place(main_configuration(view, job), _remaining_s(view, job)))
        stopped = {
            job.job_id: f"stopped with {left_s[job.job_id]:g} s remaining: shorter jobs take its place"
            for job in room.stopped
        }
        plan = answer(view, waiting, scan, "shortest remaining time of the jobs that fit", stopped=stopped)
        return replace(plan, state=_Memory(plan.state, left_s))


def _at_most_s(view: ClusterView, running: list[JobView], before: Mapping[str, float]) -> dict[str, float]:
    """Upper bounds of running jobs' remaining times: exact for jobs that changed, else the last computed value.

    Asking the cluster for the progress of all running jobs at each event would cost more than everything else.
    """
    return {
        job.job_id: before[job.job_id]
        if job.job_id in before and job.job_id not in view.changes
        else _remaining_s(view, job)
        for job in running
    }


def _remaining_s(view: ClusterView, job: JobView) -> float:
    """Estimated remaining time in the present configuration; for a waiting job in its main configuration."""
    return checked_s(job, view.remaining_s(job, None if job.allocation else main_configuration(view, job).name))
