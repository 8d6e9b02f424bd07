"""SJF: shortest job first, the best order without preemption if run times are known."""

from __future__ import annotations

from typing import ClassVar

from scheduler_sims.interface.plan import Plan
from scheduler_sims.interface.view import ClusterView, JobView
from scheduler_sims.policies.placing import main_configuration
from scheduler_sims.policies.waiting import Order, Waiting, answer, checked_s


class Sjf:
    """Jobs start in order of estimated isolated run time, shortest first; running jobs aren't stopped.

    Backfill scan: a job that doesn't fit is skipped, and jobs behind it may start. A wide job can therefore starve while
    narrow jobs keep coming. (Some simulators call the order by number of GPUs "sjf"; this is the order by time.)
    """

    needs_estimates: ClassVar[bool] = True
    preemptive: ClassVar[bool] = False

    def plan(self, view: ClusterView) -> Plan:
        """Starts what fits, shortest first. Raises PolicyError for an estimate that isn't a finite time."""
        waiting = Waiting(view, view.state, Order(isolated_s))
        scan = waiting.scan(lambda job: waiting.space.place(main_configuration(view, job)))
        return answer(view, waiting, scan, "shortest of the waiting jobs that fit")


def isolated_s(view: ClusterView, job: JobView) -> float:
    """Estimated run time of the whole job in its main configuration, in seconds."""
    return checked_s(job, view.estimates.duration_s(job, main_configuration(view, job).name))
