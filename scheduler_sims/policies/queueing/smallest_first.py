"""Smallest first: fewest GPUs first, with preemption. (Tiresias' simulator calls it "sjf".)"""

from __future__ import annotations

from typing import ClassVar

from scheduler_sims.interface.plan import Plan
from scheduler_sims.interface.view import ClusterView, JobView
from scheduler_sims.policies.placing import main_configuration
from scheduler_sims.policies.queueing.least_first import least_first


class SmallestFirst:
    """The jobs with the fewest GPUs run, those submitted first among equals; jobs with more GPUs give way.

    Backfill scan with preemption, as "sjf" of Tiresias' simulator (Gu et al., NSDI 2019), except that running jobs never move.
    """

    needs_estimates: ClassVar[bool] = False
    preemptive: ClassVar[bool] = True

    def plan(self, view: ClusterView) -> Plan:
        """Starts and stops jobs."""
        return least_first(view, gpus, "fewest GPUs of the jobs that fit")


def gpus(view: ClusterView, job: JobView) -> float:
    """The number of GPUs of a job on all its nodes."""
    return float(main_configuration(view, job).total_gpus)
