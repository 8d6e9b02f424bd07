"""SRTF: shortest remaining time first, optimal for the mean JCT on one machine; shows what preemption can gain."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from scheduler_sims.interface.handed import Handed, taken
from scheduler_sims.interface.plan import Plan
from scheduler_sims.interface.view import ClusterView, JobView, Phase
from scheduler_sims.policies.departures import Departures
from scheduler_sims.policies.placing import main_configuration
from scheduler_sims.policies.preempting import Room
from scheduler_sims.policies.waiting import Lines, Order, Waiting, answer, checked_s


@dataclass(frozen=True, slots=True)
class _Memory:
    """`running`: the jobs with resources, ranked by their remaining time when it was last computed, an upper bound of the
    present one. Asking the cluster for the progress of all running jobs at each event would cost more than everything else."""

    lines: Lines | None
    running: Handed[Departures] | None


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
        running = _running(view, memory.running if memory else None)
        room = Room.kept(waiting.space, running, lambda job: _remaining_s(view, job))
        scan = waiting.scan(lambda job: room.place(main_configuration(view, job), waiting.rank(job)))
        stopped = {
            job.job_id: f"stopped with {room.rank(job.job_id):g} s remaining: shorter jobs take its place"
            for job in room.stopped
        }
        room.finish()
        why, state = "shortest remaining time of the jobs that fit", _Memory(waiting.memory(), Handed([running]))
        return answer(view, waiting, scan, why, stopped=stopped, state=state)


def _running(view: ClusterView, last: Handed[Departures] | None) -> Departures:
    """The jobs with resources: exact for jobs that changed."""
    running = taken(last)
    changed: Iterable[str] = view.changes
    if running is None:
        running, changed = Departures(), [job.job_id for job in view.holding()]
    for job_id in changed:
        job = view.jobs.get(job_id)
        if job is None or job.queued:
            running.drop(job_id)
        else:
            running.put(job, inf if job.phase is Phase.STOPPING else _remaining_s(view, job))
    return running


def _remaining_s(view: ClusterView, job: JobView) -> float:
    """Estimated remaining time in the present configuration; for a waiting job in its main configuration."""
    return checked_s(job, view.remaining_s(job, None if job.allocation else main_configuration(view, job).name))
