"""AlloX: the lowest mean JCT if each job can run on a GPU or on CPUs (Le et al., AlloX, EuroSys 2020).

Unlike the other policies AlloX chooses between a job's GPU and CPU configurations: jobs that gain little from a GPU run on
CPUs, so that the GPUs are free for jobs that gain much. The matching itself is in matching.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, zip_longest
from math import ceil, inf
from typing import ClassVar

from emulator_runtime.domain.errors import InputError, PolicyError
from scheduler_sims.interface.handed import Handed, taken
from scheduler_sims.interface.plan import Allocation, Plan
from scheduler_sims.interface.view import ClusterView, JobView
from scheduler_sims.policies.allox.machines import Kind, Machine, kinds_of, left_s, machines_of, whole_s
from scheduler_sims.policies.allox.matching import load_solver, match
from scheduler_sims.policies.placing import FreeSpace


class Allox:
    """Jobs are matched with positions in the queues of GPUs and CPU nodes, for the least sum of completion times.

    Only the first job of each free machine starts; the other jobs are matched again at the next event. One-GPU jobs only;
    running jobs aren't stopped. `alpha` in (0, 1]: only the ceil(alpha * users) users with the least service may start jobs;
    alpha is doubled until one of them can; 1 optimises the mean JCT alone. `max_candidates`: number of jobs that are matched
    (0: all; never fewer than free machines), alternately the shortest on GPUs and the shortest on CPUs; bounds the time of
    a plan.

    A user's service: for each job, the share of steps done times the job's shortest run time.
    """

    needs_estimates: ClassVar[bool] = True
    preemptive: ClassVar[bool] = False
    one_node: ClassVar[bool] = True
    """Jobs of several nodes are left alone."""

    def __init__(self, alpha: float = 1.0, max_candidates: int = 0) -> None:
        if not 0 < alpha <= 1:
            raise InputError("allox: alpha", f"must be above 0 and at most 1, not {alpha!r}")
        if max_candidates < 0:
            raise InputError("allox: max_candidates", f"must be >= 0 (0: all jobs), not {max_candidates!r}")
        load_solver()
        self.alpha = alpha
        self.max_candidates = max_candidates

    def plan(self, view: ClusterView) -> Plan:
        """Starts jobs on free machines. Raises PolicyError for jobs of several GPUs and for unusable estimates.

        A matching starts jobs on free machines only. While none is free, it is made only for its reasons, if somebody reads them.
        """
        service = _Service.now(view) if self.alpha < 1 else None
        times = _times(view, view.state if isinstance(view.state, Handed) else None)
        waiting = view.queued()
        starts: dict[str, Allocation] = {}
        reasons: Mapping[str, str] = {}
        if waiting:
            machines = machines_of(view)
            if not any(machine.free for machine in machines):
                _refuse_unplaceable(waiting, times)
                run_s = times.of(waiting)
                reasons = LaterReasons(lambda: self._start(view, machines, waiting, run_s)[1])
            else:
                for share in _doubled(self.alpha):
                    eligible = service.least_served(waiting, share) if service else waiting
                    _refuse_unplaceable(eligible, times)
                    starts, reasons = self._start(view, machines, eligible, times.of(eligible))
                    if starts:
                        break
        return view.plan.evolve(start=starts, state=service or Handed([times]), reasons=reasons)

    def _start(
        self, view: ClusterView, machines: Sequence[Machine], jobs: Sequence[JobView], times: Sequence[Sequence[float]]
    ) -> tuple[dict[str, Allocation], dict[str, str]]:
        """The first job of each free machine; a reason for each of them and for the first waiting job. `times`: remaining run
        times by kind of machine and job."""
        kinds = kinds_of(view)
        # Fewer candidates than free machines would leave machines idle until the next event.
        most = max(self.max_candidates, sum(m.free for m in machines)) if self.max_candidates else 0
        chosen = _candidates(kinds, times, most)
        jobs = [jobs[index] for index in chosen]
        run_s = {number: [of_kind[index] for index in chosen] for number, of_kind in enumerate(times)}
        numbers = {kind: number for number, kind in enumerate(kinds)}
        queues = match([numbers[m.kind] for m in machines], [m.ready_s for m in machines], run_s)
        space = FreeSpace.now(view) if any(machine.free for machine in machines) else None
        starts: dict[str, Allocation] = {}
        reasons: dict[str, str] = {}
        waits: list[tuple[JobView, str]] = []
        for queue in queues:
            machine = machines[queue.machine]
            for ahead, job in enumerate(jobs[index] for index in queue.jobs):
                allocation = machine.place(space, job) if space and machine.free and not ahead else None
                if allocation:
                    starts[job.job_id] = allocation
                    reasons[job.job_id] = f"matched to {machine.name}, where {len(queue.jobs) - 1} jobs are to follow"
                else:
                    waits.append((job, f"waits for {machine.name}, where {ahead} jobs go before it"))
        if waits:
            head, why = min(waits, key=lambda wait: wait[0].order)
            reasons[head.job_id] = why
        return starts, reasons


@dataclass(slots=True)
class _Times:
    """Remaining run times of the waiting jobs, by kind of machine; they don't change while a job waits."""

    kinds: list[Kind]
    left_s: dict[str, list[float]] = field(default_factory=dict)

    def of(self, jobs: Sequence[JobView]) -> list[list[float]]:
        """For each kind, the times of these jobs."""
        each = [self.left_s[job.job_id] for job in jobs]
        return [[times[number] for times in each] for number in range(len(self.kinds))]


def _times(view: ClusterView, last: Handed[_Times] | None) -> _Times:
    kinds, times = kinds_of(view), taken(last)
    changed: Iterable[str] = sorted(view.changes)  # so that of two jobs that can't be placed always the same is named
    if times is None or times.kinds != kinds:
        times, changed = _Times(kinds), view.jobs
    for job_id in changed:
        job = view.jobs.get(job_id)
        if job is not None and job.queued:
            times.left_s[job_id] = [left_s(view, job, whole_s(view, job, kind)) for kind in kinds]
        else:
            times.left_s.pop(job_id, None)
    return times


class LaterReasons(Mapping[str, str]):
    """Reasons that are computed when they are read."""

    def __init__(self, compute: Callable[[], Mapping[str, str]]) -> None:
        self._compute = compute
        self._reasons: Mapping[str, str] | None = None

    @property
    def _known(self) -> Mapping[str, str]:
        if self._reasons is None:
            self._reasons = self._compute()
        return self._reasons

    def __getitem__(self, job_id: str) -> str:
        return self._known[job_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


@dataclass(frozen=True)
class _Service:
    """Service by user. `left_s`: of ended jobs; `jobs`: user and shortest run time of each present job."""

    left_s: Mapping[str, float]
    jobs: Mapping[str, tuple[str, float]]
    received_s: Mapping[str, float]

    @classmethod
    def now(cls, view: ClusterView) -> _Service:
        old: _Service = view.state or cls({}, {}, {})
        left_s = dict(old.left_s)
        for job_id, (user, shortest_s) in old.jobs.items():
            if job_id not in view.jobs:
                left_s[user] = left_s.get(user, 0.0) + shortest_s
        kinds = kinds_of(view)
        jobs = {
            job.job_id: old.jobs.get(job.job_id) or (job.user, _shortest_s(view, kinds, job))
            for job in view.jobs.values()
        }
        received_s = dict(left_s)
        for job in view.jobs.values():
            share = view.steps_done(job) / job.steps_total
            received_s[job.user] = received_s.get(job.user, 0.0) + share * jobs[job.job_id][1]
        return cls(left_s, jobs, received_s)

    def least_served(self, waiting: Sequence[JobView], share: float) -> list[JobView]:
        """The waiting jobs of the ceil(share * users) users with the least service, among users with waiting jobs."""
        users = sorted(dict.fromkeys(job.user for job in waiting), key=lambda user: self.received_s.get(user, 0.0))
        eligible = set(users[: ceil(share * len(users) - 1e-9)])
        return [job for job in waiting if job.user in eligible]


def _shortest_s(view: ClusterView, kinds: Sequence[Kind], job: JobView) -> float:
    """The job's whole run time on the fastest kind of machine; 0 if no kind suits (the matching refuses such a job)."""
    return min((time for kind in kinds if (time := whole_s(view, job, kind)) < inf), default=0.0)


def _doubled(share: float) -> Iterator[float]:
    while share < 1:
        yield share
        share *= 2
    yield 1.0


def _refuse_unplaceable(jobs: Sequence[JobView], times: _Times) -> None:
    for job in jobs:
        if min(times.left_s[job.job_id], default=inf) == inf:
            raise PolicyError(
                f"allox: job {job.job_id!r} can run on no machine of this cluster: GPUs take one-GPU jobs, "
                "CPU configurations run on nodes without GPUs only; add such nodes or use another policy"
            )


def _candidates(kinds: Sequence[Kind], times: Sequence[Sequence[float]], most: int) -> list[int]:
    """At most `most` jobs (0: all): alternately the next shortest on GPUs and on CPUs; returned in their original order."""
    jobs = range(len(times[0]))
    if not 0 < most < len(jobs):
        return list(jobs)
    on_gpu = _shortest_first(jobs, [of_kind for kind, of_kind in zip(kinds, times, strict=True) if kind.gpu_type])
    on_cpu = _shortest_first(jobs, [of_kind for kind, of_kind in zip(kinds, times, strict=True) if not kind.gpu_type])
    turns = (index for index in chain.from_iterable(zip_longest(on_gpu, on_cpu)) if index is not None)
    return sorted(islice(dict.fromkeys(turns), most))


def _shortest_first(jobs: Sequence[int], times: Sequence[Sequence[float]]) -> list[int]:
    """The jobs that can run on one of these kinds, ordered by run time on the fastest kind."""
    fastest = {index: min((of_kind[index] for of_kind in times), default=inf) for index in jobs}
    return sorted((index for index in jobs if fastest[index] < inf), key=lambda index: fastest[index])
