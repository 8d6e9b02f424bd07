"""SRTF: on one machine no order has a lower mean JCT, so it is what preemption can gain when run times are known."""

from __future__ import annotations

from typing import ClassVar

from scheduler_sims.plan import Allocation, Plan
from scheduler_sims.policies.placing import main_configuration
from scheduler_sims.policies.preempting import Room
from scheduler_sims.policies.waiting import Order, Waiting, answer, checked_s
from scheduler_sims.view import ClusterView, JobView, Phase


class Srtf:
    """Jobs with the shortest estimated remaining run time run; a job stops if one with strictly less left needs its place.

    Backfill scan, as in Tiresias' simulator ("shortest"; Gu et al., NSDI 2019), except that a running job never moves:
    the jobs with the most left are stopped until the shorter one fits. On a tie the running job stays.
    """

    needs_estimates: ClassVar[bool] = True
    preemptive: ClassVar[bool] = True

    def plan(self, view: ClusterView) -> Plan:
        """Starts and stops jobs. Raises PolicyError for an estimate that isn't a finite time."""
        waiting = Waiting(view, view.state, Order(_remaining_s))
        holders = waiting.holders()
        left = {job.job_id: _remaining_s(view, job) for job in holders if job.phase is not Phase.STOPPING}
        running = [job for job in holders if job.job_id in left]
        running.sort(key=lambda job: (left[job.job_id], job.order), reverse=True)
        room = Room(waiting.space, holders, running)

        def place(job: JobView) -> Allocation | None:
            mine = _remaining_s(view, job)
            return room.place(main_configuration(view, job), lambda other: left[other.job_id] > mine)

        scan = waiting.scan(place)
        stopped = {
            job.job_id: f"stopped with {left[job.job_id]:g} s left: shorter jobs need its place" for job in room.stopped
        }
        return answer(view, waiting, scan, "shortest remaining time of the jobs that fit", stopped=stopped)


def _remaining_s(view: ClusterView, job: JobView) -> float:
    """Estimated run time left where the job runs; while it waits, in its main configuration."""
    return checked_s(job, view.remaining_s(job, None if job.allocation else main_configuration(view, job).name))
