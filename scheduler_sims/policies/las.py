"""LAS: least attained service first, for clusters where run times are unknown."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar

from scheduler_sims.interface.handed import Handed, taken
from scheduler_sims.interface.plan import Allocation, Plan
from scheduler_sims.interface.view import ClusterView, JobView, Phase
from scheduler_sims.policies.departures import Departures, Timeline
from scheduler_sims.policies.option_values import checked_seconds
from scheduler_sims.policies.placing import main_configuration
from scheduler_sims.policies.preempting import Room
from scheduler_sims.policies.waiting import Lines, Order, Scan, Waiting, answer

_SLACK_S = 1e-6
"""Clocks count integer nanoseconds: a wake-up at the end of a quantum may come a rounding error early."""

_NEVER_S = 1e12
"""Never reached: a threshold of this size switches demotion off, a quantum of this size preemption. Floats of this size still
resolve seconds."""

_PREEMPTIBLE = 1.0
"""The rank of all jobs that may be stopped: the one that was submitted last goes first."""

_MIN_RECHECK_S = 1e-3
"""A job whose start is overdue is checked again after this time, not every microsecond."""


_MARGIN_S = 1e-3
"""Times at which jobs will be preemptible are computed in advance, and exactly where they are nearer than this."""


@dataclass(frozen=True, slots=True)
class _Memory:
    """`cpu_s`: seconds on CPUs by job, in runs that this policy ended; the cluster counts GPU-seconds only."""

    lines: Lines | None
    cpu_s: Mapping[str, float]
    running: Handed[_Running] | None = None


@dataclass(slots=True)
class _Running:
    """The jobs with resources. `may_stop`: stopping ones, and those of the second queue past their quantum, which will stay
    preemptible. `soon`: when each other running job will be, about, in order of time. `starting`: jobs that don't run yet."""

    may_stop: Departures = field(default_factory=Departures)
    soon: Timeline = field(default_factory=Timeline)
    starting: set[str] = field(default_factory=set)

    def drop(self, job_id: str) -> None:
        """Forget a job."""
        self.may_stop.drop(job_id)
        self.starting.discard(job_id)
        self.soon.drop(job_id)


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
        running = self._running(view, memory.running if memory else None, cpu_s)
        room = Room.kept(waiting.space, running.may_stop)

        def place(job: JobView) -> Allocation | None:
            return room.place(main_configuration(view, job), inf if waiting.rank(job) else 0.0)

        scan = waiting.scan(place)
        room.finish()
        stopped = {job.job_id: "stopped: a job with less attained service needs its place" for job in room.stopped}
        of_first_queue_waits = any(not waiting.rank(job) for job in scan.blocked)
        return answer(
            view,
            waiting,
            scan,
            "least attained service of the jobs that fit",
            stopped=stopped,
            wake_at_s=self._wake_at_s(view, scan, running, cpu_s, stopped) if of_first_queue_waits else None,
            state=_Memory(waiting.memory(), _cpu_seconds(view, room.stopped, cpu_s), Handed([running])),
        )

    def _running(self, view: ClusterView, last: Handed[_Running] | None, cpu_s: Mapping[str, float]) -> _Running:
        """The jobs with resources: what changed, and what has become preemptible since the last plan."""
        running = taken(last)
        changed: Iterable[str] = view.changes
        if running is None:
            running, changed = _Running(), [job.job_id for job in view.holding()]
        looks = running.soon.until(view.now_s + _MARGIN_S)
        for job_id in changed:
            running.drop(job_id)
            job = view.jobs.get(job_id)
            if job is None or job.queued:
                continue
            if job.phase is Phase.STOPPING:
                running.may_stop.put(job, inf)
            elif job.running_since_s is None:
                running.starting.add(job_id)
            else:
                running.soon.expect(job_id, view.now_s + self._preemptible_in_s(view, job, cpu_s))
                looks.append(job_id)
        for job_id in looks:
            if job_id in running.soon.times and self._may_stop(view, view.jobs[job_id], cpu_s):
                running.drop(job_id)
                running.may_stop.put(view.jobs[job_id], _PREEMPTIBLE)
        for job_id in running.starting:
            if job_id not in running.may_stop.jobs and self._may_stop(view, view.jobs[job_id], cpu_s):
                running.may_stop.put(view.jobs[job_id], _PREEMPTIBLE)
        return running

    def _may_stop(self, view: ClusterView, job: JobView, cpu_s: Mapping[str, float]) -> bool:
        """Whether a running job is in the second queue and past its quantum."""
        return bool(self._queue(view, job, cpu_s)) and self._quantum_left_s(view, job) <= _SLACK_S

    def _preemptible_in_s(self, view: ClusterView, job: JobView, cpu_s: Mapping[str, float]) -> float:
        """How long it takes until a running job is, rounding aside."""
        gpus = job.allocation.gpus if job.allocation else 0
        return max(self._missing_s(view, job, cpu_s) / max(1, gpus), self._quantum_left_s(view, job))

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
        self, view: ClusterView, scan: Scan, running: _Running, cpu_s: Mapping[str, float], stopped: Container[str]
    ) -> float | None:
        """When the next running job becomes preemptible; None if none will."""
        starting = [view.jobs[job_id] for job_id in running.starting if job_id not in stopped]
        holdings = [(job, job.allocation) for job in starting if job.allocation]
        holdings += [(view.jobs[job_id], allocation) for job_id, allocation in scan.starts.items()]
        times = (self._preemptible_at_s(view, job, allocation, cpu_s) for job, allocation in holdings)
        first_s = min((at_s for at_s in times if at_s > view.now_s + _SLACK_S), default=inf)
        for about_s, job_id in running.soon.ordered:
            if about_s > first_s + _MARGIN_S:
                break
            job = view.jobs[job_id]
            if job.allocation:
                at_s = self._preemptible_at_s(view, job, job.allocation, cpu_s)
                if view.now_s + _SLACK_S < at_s < first_s:
                    first_s = at_s
        return None if first_s == inf else first_s

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
    gone = [job_id for job_id in view.changes if job_id in cpu_s and job_id not in view.jobs] if cpu_s else []
    if not ended and not gone:
        return cpu_s
    merged = {job_id: seconds for job_id, seconds in cpu_s.items() if job_id in view.jobs}
    for job_id, seconds in ended.items():
        merged[job_id] = merged.get(job_id, 0.0) + seconds
    return merged
