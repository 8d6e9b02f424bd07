"""Finish-time fairness: how much longer a job takes in the shared cluster than it would alone (Mahajan et al., NSDI 2020)."""

from __future__ import annotations

from typing import ClassVar

from emulator_runtime.domain.errors import UnknownNameError
from scheduler_sims.interface.plan import Plan
from scheduler_sims.interface.view import ClusterView, JobView
from scheduler_sims.policies.placing import main_configuration
from scheduler_sims.policies.queueing.in_order import in_order
from scheduler_sims.policies.waiting import checked_s

_FIDELITIES = ("strict", "as_coded")


class Ftf:
    """The jobs run whose finish time would be the most unfair: (time since submission + remaining time) / isolated run time.

    Backfill scan with preemption at each arrival and end; a job's ratio grows while it waits and falls below others' while it
    runs, so use it with `rounds:of=ftf`. `fidelity` as_coded: the smallest ratio first, as in Synergy's simulator
    (msr-fiddle/synergy at 1bb2bed), the reverse of what fairness wants.
    """

    needs_estimates: ClassVar[bool] = True
    preemptive: ClassVar[bool] = True

    def __init__(self, fidelity: str = "strict") -> None:
        if fidelity not in _FIDELITIES:
            raise UnknownNameError("ftf: fidelity", "fidelity", fidelity, _FIDELITIES)
        self._sign = -1 if fidelity == "strict" else 1

    def plan(self, view: ClusterView) -> Plan:
        """Starts and stops jobs. Raises PolicyError for an estimate that isn't a finite time."""
        order = sorted(view.jobs.values(), key=lambda job: (self._sign * round(unfairness(view, job), 9), job.order))
        return in_order(view, order, "the most unfair finish time of the jobs that fit")


def unfairness(view: ClusterView, job: JobView) -> float:
    """(now - submission + remaining time) / isolated run time, all estimated on the job's main configuration."""
    name = job.allocation.configuration if job.allocation else main_configuration(view, job).name
    whole_s = checked_s(job, view.estimates.duration_s(job, name))
    left_s = checked_s(job, view.remaining_s(job, name))
    return (view.now_s - job.submit_s + left_s) / max(whole_s, 1e-9)
