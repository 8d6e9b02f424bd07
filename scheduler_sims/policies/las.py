"""LAS: least attained service first, for clusters where run times are unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import ClassVar

from scheduler_sims.interface.plan import Allocation, Plan
from scheduler_sims.interface.view import ClusterView, JobView, Phase
from scheduler_sims.policies.option_values import checked_seconds
from scheduler_sims.policies.placing import main_configuration
from scheduler_sims.policies.preempting import Ranks, Room
from scheduler_sims.policies.waiting import Lines, Order, Scan, Waiting, answer

_SLACK_S = 1e-6
"""Clocks count integer nanoseconds: a wake-up at the end of a quantum may come a rounding error early."""

_NEVER_S = 1e12
"""Never reached: a threshold of this size switches demotion off, a quantum of this size preemption. Floats of this size still
resolve seconds."""

_MIN_RECHECK_S = 1e-3
"""A job whose start is overdue is checked again after this time, not every microsecond."""


@dataclass(frozen=True, slots=True)
class _Memory:
    """`cpu_s`: seconds on CPUs by job, in runs that this policy ended; the cluster counts GPU-seconds only."""

    lines: Lines | None
    cpu_s: Mapping[str, float]


class Las:
    """Two queues: jobs below `threshold_s` of attained service, then all others; order of submission within a queue.

    Least attained service with discretised queues: Gu et al., Tiresias, NSDI 2019, section 3.3. Service is GPU-seconds
    of holding devices; a job on CPUs attains the seconds of holding them (runs that the policy didn't end itself aren't
    counted). Backfill scan. A waiting job of the first queue preempts jobs of the second queue, youngest first, once they
    have run for `quantum_s` since the first step after their last start.
    """

    needs_estimates: ClassVar[bool] = False
    preemptive: ClassVar[bool] = True

    def __init__(self, threshold_s: float = 60.0, quantum_s: float = 10.0) -> None:
        self.threshold_s = checked_seconds("las: threshold_s", threshold_s, least=1e-3, most=_NEVER_S)
        self.quantum_s = checked_seconds("las: quantum_s", quantum_s, most=_NEVER_S)

    def plan(self, view: ClusterView) -> Plan:
        """Starts and stops jobs, and asks to be woken when the next running job becomes preemptible."""
        memory: _Memory | None = view.state
        cpu_s = memory.cpu_s if memory else {}
        waiting = Waiting(view, memory.lines if memory else None, Order(lambda v, job: self._queue(v, job, cpu_s)))
        holders = waiting.holders()
        running = [job for job in holders if job.phase is not Phase.STOPPING]
        room = Room(waiting.space, holders, Ranks(self._may_stop(view, running, cpu_s)))

        def place(job: JobView) -> Allocation | None:
            return room.place(main_configuration(view, job), inf if self._queue(view, job, cpu_s) else 0.0)

        scan = waiting.scan(place)
        stopped = {job.job_id: "stopped: a job with less attained service needs its place" for job in room.stopped}
        plan = answer(view, waiting, scan, "least attained service of the jobs that fit", stopped=stopped)
        stays = [job for job in running if job.job_id not in stopped]
        return replace(
            plan,
            wake_at_s=self._wake_at_s(view, scan, stays, cpu_s),
            state=_Memory(plan.state, _cpu_seconds(view, room.stopped, cpu_s)),
        )

    def _may_stop(self, view: ClusterView, running: list[JobView], cpu_s: Mapping[str, float]) -> dict[str, float]:
        """Jobs of the second queue past their quantum; the value is their position in order of submission."""
        return {
            job.job_id: float(number)
            for number, job in enumerate(running, 1)
            if self._queue(view, job, cpu_s) and self._quantum_left_s(view, job) <= _SLACK_S
        }

    def _queue(self, view: ClusterView, job: JobView, cpu_s: Mapping[str, float]) -> int:
        """0 for the first queue, 1 for the second."""
        return int(self._missing_s(view, job, cpu_s) <= _SLACK_S)

    def _missing_s(self, view: ClusterView, job: JobView, cpu_s: Mapping[str, float]) -> float:
        """Service until the job reaches the threshold."""
        on_cpu = _held_s(view, job) if job.allocation and not job.allocation.gpus else 0.0
        return self.threshold_s - view.attained_gpu_s(job) - cpu_s.get(job.job_id, 0.0) - on_cpu

    def _quantum_left_s(self, view: ClusterView, job: JobView) -> float:
        """Time until the quantum of a job ends that starts now, or runs; the time of the start doesn't count."""
        return view.costs.begin_s(resumed=job.steps_done > 0) + self.quantum_s - _held_s(view, job)

    def _wake_at_s(
        self, view: ClusterView, scan: Scan, stays: list[JobView], cpu_s: Mapping[str, float]
    ) -> float | None:
        """When the next running job becomes preemptible; None if no job of the first queue waits."""
        if not any(self._queue(view, job, cpu_s) == 0 for job in scan.blocked):
            return None
        holdings = [(job, job.allocation) for job in stays if job.allocation]
        holdings += [(view.jobs[job_id], allocation) for job_id, allocation in scan.starts.items()]
        times = (self._preemptible_at_s(view, job, allocation, cpu_s) for job, allocation in holdings)
        return min((at_s for at_s in times if at_s > view.now_s + _SLACK_S), default=None)

    def _preemptible_at_s(
        self, view: ClusterView, job: JobView, allocation: Allocation, cpu_s: Mapping[str, float]
    ) -> float:
        """When the job, which runs or starts now, will be in the second queue and past its quantum."""
        demoted_s = self._missing_s(view, job, cpu_s) / max(1, allocation.gpus)
        in_s = max(demoted_s, self._quantum_left_s(view, job))
        if job.running_since_s is not None:
            return view.now_s + in_s
        return view.now_s + max(in_s, _MIN_RECHECK_S) + (view.costs.decide_s if job.queued else 0.0)


def _held_s(view: ClusterView, job: JobView) -> float:
    """How long the job has held resources since its last start; 0 while it waits or is about to start."""
    return 0.0 if job.running_since_s is None else view.now_s - job.running_since_s


def _cpu_seconds(view: ClusterView, stopped: list[JobView], cpu_s: Mapping[str, float]) -> Mapping[str, float]:
    """CPU seconds by job, once `stopped` are stopped."""
    ended = {job.job_id: _held_s(view, job) for job in stopped if job.allocation and not job.allocation.gpus}
    if not ended and all(job_id in view.jobs for job_id in cpu_s):
        return cpu_s
    merged = {job_id: seconds for job_id, seconds in cpu_s.items() if job_id in view.jobs}
    for job_id, seconds in ended.items():
        merged[job_id] = merged.get(job_id, 0.0) + seconds
    return merged
