"""Strict priority: jobs of larger weight first, with preemption, as Kubernetes does it by PriorityClass."""

from __future__ import annotations

from typing import ClassVar

from scheduler_sims.interface.plan import Plan
from scheduler_sims.interface.view import ClusterView, JobView
from scheduler_sims.policies.queueing.least_first import least_first


class Priority:
    """The jobs with the largest weight run, those submitted first among equals; jobs of smaller weight give way.

    A job that doesn't fit doesn't hold up those behind it (backfill scan). Replicas of inference services have a weight, too.
    """

    needs_estimates: ClassVar[bool] = False
    preemptive: ClassVar[bool] = True

    def plan(self, view: ClusterView) -> Plan:
        """Starts and stops jobs."""
        return least_first(view, _rank, "largest weight of the jobs that fit")


def _rank(_view: ClusterView, job: JobView) -> float:
    return -job.weight
