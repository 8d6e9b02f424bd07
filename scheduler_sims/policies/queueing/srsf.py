"""SRSF: shortest remaining service first, where service is GPU-time; what Tiresias approximates without estimates."""

from __future__ import annotations

from typing import ClassVar

from scheduler_sims.interface.plan import Plan
from scheduler_sims.interface.view import ClusterView, JobView
from scheduler_sims.policies.placing import main_configuration
from scheduler_sims.policies.queueing.least_first import least_first
from scheduler_sims.policies.waiting import checked_s

_LESS = 1e-4
"""Decides between equals; less than the millisecond of the rank itself."""


class Srsf:
    """The jobs with the least remaining GPU-time run: estimated remaining time times GPUs; a job on CPUs counts as one GPU.

    Backfill scan with preemption, as "shortest-gpu" of Tiresias' simulator (Gu et al., NSDI 2019), except that running jobs
    never move and stay on a tie.
    """

    needs_estimates: ClassVar[bool] = True
    preemptive: ClassVar[bool] = True

    def plan(self, view: ClusterView) -> Plan:
        """Starts and stops jobs. Raises PolicyError for an estimate that isn't a finite time."""
        return least_first(view, remaining_gpu_s, "least remaining GPU-time of the jobs that fit")


def remaining_gpu_s(view: ClusterView, job: JobView) -> float:
    """Estimated remaining GPU-seconds, to the millisecond: a stop waits for the end of a step, which must not decide.

    Among equals running jobs go before waiting ones, and of those the one with fewer GPUs: it had less left before.
    """
    wanted = main_configuration(view, job)
    gpus = max(1, wanted.total_gpus)
    left_s = checked_s(job, view.remaining_s(job, None if job.allocation else wanted.name))
    return round(left_s * gpus, 3) + _LESS * (gpus / (gpus + 1) if job.allocation else 1)
