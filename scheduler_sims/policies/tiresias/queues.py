"""The queues of Tiresias: a job begins in the first one and moves down with the service that it attains.

Within a queue the jobs that run come first, in the order in which they started, then the waiting ones. A new or demoted job joins
the end; a preempted job goes to the front of those that wait. Order as in SymbioticLab/Tiresias at 959f9b0 (dlas_sim_jobs of
its simulator).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import floor, inf

from scheduler_sims.interface.view import ClusterView, JobView, Phase
from scheduler_sims.policies.departures import Timeline
from scheduler_sims.policies.placing import main_configuration

TICK_S = 1e-3
"""Times that differ by less count as equal: a stop waits for the end of a step, which must not decide an order."""

_QUEUE, _WAITING = 2.0**40, 2.0**39
_RECENT = 64
"""So many standings are copied at each event, and all of them once in as many events."""
_UNCHANGED = object()


@dataclass(frozen=True, slots=True)
class Rules:
    """`limits`: attained service at which a job leaves each queue but the last. `by_gpus`: service is GPU-seconds, else seconds.

    `promote`: a waiting job returns to the first queue, with its service forgotten, when it has waited `promote` times as long
    as it had run; 0: never. `late`: as Tiresias' simulator does, a demotion is noticed by floor((limit - e) / g) seconds after
    the last event or at another event, where e are the seconds and g the GPUs of the job; the limit is reached at limit / g - e.
    """

    limits: tuple[float, ...]
    by_gpus: bool = True
    promote: float = 0.0
    late: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    """One job: its queue (0 is the first), its place there, and the seconds it ran and waited since it was last promoted.

    `runs`: `place` is among the running jobs of the queue, else among the waiting ones. `since_s`: when the present run or wait
    began. `number`: its place in order of submission.
    """

    queue: int
    place: int
    gpus: int
    runs: bool = False
    holds: bool = False
    ran_s: float = 0.0
    waited_s: float = 0.0
    since_s: float = 0.0
    number: int = 0

    @property
    def rank(self) -> float:
        """The place in the order of all jobs, smaller first; exact up to 2**37 changes of place."""
        return self.queue * _QUEUE + (0 if self.runs else _WAITING) + self.place

    def ran(self, now_s: float) -> float:
        """Seconds that it has run until now."""
        return self.ran_s + (now_s - self.since_s if self.holds else 0.0)

    def begun(self, now_s: float) -> Standing:
        """The standing of a waiting job if it starts now; `replace` takes three times as long."""
        own = (self.queue, self.place, self.gpus, self.runs)
        return Standing(*own, holds=True, ran_s=self.ran_s, waited_s=self.waited_s, since_s=now_s, number=self.number)

    def waited(self, now_s: float) -> float:
        """Seconds that it has waited until now; the time before its first run (since the last promotion) doesn't count."""
        return self.waited_s + (now_s - self.since_s if not self.holds and self.ran_s > TICK_S else 0.0)


class Standings(Mapping[str, Standing]):
    """The standings of all jobs, by job id.

    A state must not change, and copying thousands of standings at each event takes longer than the rest of it. So the next
    view has a copy of the few `recent` ones, beside the same `settled` ones.
    """

    __slots__ = ("_recent", "_settled")

    def __init__(self, settled: Mapping[str, Standing], recent: Mapping[str, Standing | None] | None = None) -> None:
        self._settled = settled
        self._recent = dict(recent or {})
        """None: the job has left."""

    def next(self) -> Standings:
        """A copy that may be changed."""
        if len(self._recent) > _RECENT:
            return Standings(dict(self))
        return Standings(self._settled, self._recent)

    def put(self, job_id: str, standing: Standing) -> None:
        if self._recent.get(job_id, standing) is None:  # another job of the same name joins the end
            self._settled, self._recent = dict(self), {}
        self._recent[job_id] = standing

    def drop(self, job_id: str) -> None:
        if job_id in self._settled:
            self._recent[job_id] = None
        else:
            self._recent.pop(job_id, None)

    def __getitem__(self, job_id: str) -> Standing:
        standing = self._recent[job_id] if job_id in self._recent else self._settled[job_id]
        if standing is None:
            raise KeyError(job_id)
        return standing

    def __iter__(self) -> Iterator[str]:
        """In the order in which the jobs joined."""
        yield from (job_id for job_id in self._settled if self._recent.get(job_id, _UNCHANGED) is not None)
        yield from (job_id for job_id in self._recent if job_id not in self._settled)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True)
class Queues:
    """The standings of all jobs, and the next places at the front and at the end. `moved`: jobs that were demoted while
    running."""

    jobs: Mapping[str, Standing] = field(default_factory=dict)
    front: int = -1
    end: int = 1
    joined: int = 0
    moved: frozenset[str] = frozenset()


class Bookkeeping:
    """Derives the queues at one view from those at the last one. `promoted`: whether the ranks of waiting jobs have changed.

    `demotions`: when each job that runs reaches the limit of its queue; brought up to date, and made anew if there are none.
    `touched`: the jobs that may have another rank or phase than in the last view.
    """

    def __init__(self, view: ClusterView, rules: Rules, old: Queues, demotions: Timeline | None = None) -> None:
        self._view, self._rules = view, rules
        self._jobs = (old.jobs if isinstance(old.jobs, Standings) else Standings(old.jobs)).next()
        self._front, self._end, self._joined = old.front, old.end, old.joined
        self._moved: set[str] = set()
        self.promoted = False
        changed = {*(view.jobs if not old.joined else view.changes), *old.moved}
        self._follow(changed)
        self.demotions = Timeline() if demotions is None else demotions
        self._expect([job.job_id for job in view.holding()] if demotions is None else changed)
        self._demote()
        self._expect(self._moved)
        self.touched = changed | self._moved
        if rules.promote:
            self._promote()

    @property
    def queues(self) -> Queues:
        return Queues(self._jobs, self._front, self._end, self._joined, frozenset(self._moved))

    def standing(self, job: JobView) -> Standing:
        return self._jobs[job.job_id]

    def service(self, job: JobView) -> float:
        """Attained service since the last promotion, in the unit of the limits."""
        standing = self._jobs[job.job_id]
        return standing.ran(self._view.now_s) * (standing.gpus if self._rules.by_gpus else 1)

    def wake_at_s(self, stopped: Container[str], starting: Iterable[str]) -> float | None:
        """When the next job changes its queue, if these jobs are stopped and those start now; None if no job will."""
        now_s = self._view.now_s
        times = [self._next_demotion_s(stopped)]
        times += [self._demotion_s(self._jobs[job_id].begun(now_s)) for job_id in starting]
        if self._rules.promote:
            times += [self._promotion_s(standing) for standing in self._jobs.values()]
        return min((max(at_s, now_s + TICK_S) for at_s in times if at_s < inf), default=None)

    def _expect(self, changed: Iterable[str]) -> None:
        """Enter when these jobs will be demoted, if they run on."""
        for job_id in changed:
            job, standing = self._view.jobs.get(job_id), self._jobs.get(job_id)
            if job is None or standing is None or job.phase is Phase.STOPPING or not self._is_demotable(standing):
                self.demotions.drop(job_id)
            else:
                self.demotions.expect(job_id, self._reached_s(standing))

    def _next_demotion_s(self, stopped: Container[str]) -> float:
        """When the next of the running jobs is demoted, apart from `stopped` ones."""
        if self._rules.late and self._rules.by_gpus:
            runs = (job_id for job_id in self.demotions.times if job_id not in stopped)
            return min((self._demotion_s(self._jobs[job_id]) for job_id in runs), default=inf)
        return next((at_s for at_s, job_id in self.demotions.ordered if job_id not in stopped), inf)

    def _follow(self, changed: Iterable[str]) -> None:
        """New jobs join; started ones go to the end of those that run, stopped ones to the front of those that wait."""
        for job_id in changed:
            if job_id not in self._view.jobs:
                self._jobs.drop(job_id)
        jobs = [self._view.jobs[job_id] for job_id in changed if job_id in self._view.jobs]
        stopped = []
        started = []
        for job in sorted(jobs, key=lambda job: job.order):
            standing = self._jobs.get(job.job_id)
            if standing is None:
                standing = self._join(job)
            standing = _timed(job, standing)
            self._jobs.put(job.job_id, standing)
            if job.queued and standing.runs:
                stopped.append((standing.place, job.job_id))
            elif job.phase in (Phase.STARTING, Phase.RUNNING) and not standing.runs:
                started.append((standing.queue, standing.place, job.job_id))
        for _, job_id in sorted(stopped, reverse=True):
            self._jobs.put(job_id, replace(self._jobs[job_id], runs=False, place=self._front))
            self._front -= 1
        for *_, job_id in sorted(started):
            self._jobs.put(job_id, replace(self._jobs[job_id], runs=True, place=self._next()))

    def _join(self, job: JobView) -> Standing:
        """A new job; one that ran before (the scheduler was restarted) has its service."""
        gpus = max(1, main_configuration(self._view, job).total_gpus)
        self._joined += 1
        ran_s = job.attained_gpu_s / gpus
        return Standing(0, self._next(), gpus, ran_s=ran_s, since_s=job.submit_s, number=self._joined)

    def _demote(self) -> None:
        """Running jobs with enough service go to the end of the next queue: by one as the simulator does, else as far as due."""
        due = []
        for at_s, job_id in self.demotions.ordered:
            if at_s > self._view.now_s + TICK_S:
                break
            due.append(self._view.jobs[job_id])
        for job_id in [job.job_id for job in sorted(due, key=lambda job: job.order)]:
            standing = self._jobs[job_id]
            queue = standing.queue + 1
            while not self._rules.late and self._is_due(replace(standing, queue=queue)):
                queue += 1
            self._jobs.put(job_id, replace(standing, queue=queue, runs=False, place=self._next()))
            self._moved.add(job_id)

    def _is_demotable(self, standing: Standing) -> bool:
        """Whether a job runs in a queue that it will leave."""
        return standing.holds and standing.queue < len(self._rules.limits)

    def _is_due(self, standing: Standing) -> bool:
        return self._is_demotable(standing) and self._reached_s(standing) <= self._view.now_s + TICK_S

    def _reached_s(self, standing: Standing) -> float:
        """When a running job reaches the limit of its queue."""
        weight = standing.gpus if self._rules.by_gpus else 1
        return standing.since_s + self._rules.limits[standing.queue] / weight - standing.ran_s

    def _demotion_s(self, standing: Standing) -> float:
        if not self._is_demotable(standing):
            return inf
        if not self._rules.late or not self._rules.by_gpus:
            return self._reached_s(standing)
        now_s = self._view.now_s
        left_s = self._rules.limits[standing.queue] - standing.ran(now_s)
        return now_s + floor(left_s / standing.gpus + TICK_S)

    def _promote(self) -> None:
        for job_id, standing in list(self._jobs.items()):
            if self._promotion_s(standing) <= self._view.now_s + TICK_S:
                since_s = self._view.now_s
                place = self._next()
                fresh = replace(standing, queue=0, place=place, ran_s=0.0, waited_s=0.0, since_s=since_s)
                self._jobs.put(job_id, fresh)
                self.touched.add(job_id)
                self.promoted = True

    def _promotion_s(self, standing: Standing) -> float:
        """When a waiting job of a lower queue will have waited long enough."""
        if not self._rules.promote or standing.holds or standing.queue == 0 or standing.ran_s <= TICK_S:
            return inf
        return standing.since_s + self._rules.promote * standing.ran_s - standing.waited_s

    def _next(self) -> int:
        self._end += 1
        return self._end


def _timed(job: JobView, standing: Standing) -> Standing:
    """The standing with its clock switched to running or waiting, if the job started or stopped."""
    if job.running_since_s is not None and not standing.holds:
        waited_s = standing.waited(job.running_since_s)
        return replace(standing, holds=True, waited_s=waited_s, since_s=job.running_since_s)
    if job.running_since_s is None and standing.holds:
        return replace(standing, holds=False, ran_s=standing.ran(job.queued_since_s), since_s=job.queued_since_s)
    return standing
