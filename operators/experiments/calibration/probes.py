"""The probe jobs of a calibration, and what their statuses and the scheduler's decisions tell about costs. No clock, no API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise

from emulator_runtime.domain.job import Configuration, JobSpec, TimedWork
from emulator_runtime.domain.units import to_ns
from operators.experiments.calibration.costs import ProbeRun, Probes, ProbeStop
from operators.experiments.calibration.policy import user_of
from operators.experiments.records import Told
from scheduler_sims.inputs.cluster_file import ClusterSpec

ALONE, BURST, WIDE, CHAIN, VISITS = 3, 12, 32, 10, 3
STEP_S = 1.0
"""Of a probe of one step."""
YIELD_STEP_S = 0.1
_YIELD_STEPS = 300
_BETWEEN_ALONE_S = 9.0
_FIRST_VISIT_S, _BETWEEN_S = 7.0, 8.0
_TOGETHER_S = 15.0
"""Those that are stopped together all run by then, and are not done for a while."""
_CPU_MILLI = 1000


@dataclass(frozen=True, slots=True)
class Decision:
    """What the scheduler decided at a time (nanoseconds since 1970): jobs by id. `jobs`: how many it knew then."""

    at_ns: int
    started: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    jobs: int = 0


@dataclass(frozen=True, slots=True)
class ProbeJobs:
    """In the order in which they are run, each kind after the one before. `warm_up` is not looked at: first times are slow."""

    warm_up: tuple[JobSpec, ...]
    alone: tuple[JobSpec, ...]
    burst: tuple[JobSpec, ...]
    wide: tuple[JobSpec, ...]
    """As `burst`, on more places; none where there are no more."""
    chain: tuple[JobSpec, ...]
    yielding: tuple[JobSpec, ...]
    """The one that yields, then its visitors."""
    together: tuple[JobSpec, ...]
    """One on each place of `burst` that yields, then a visitor for each of them, all at once; none where there is one place."""

    @property
    def phases(self) -> tuple[tuple[JobSpec, ...], ...]:
        return (self.warm_up, self.alone, self.burst, self.wide, self.chain, self.yielding, self.together)


def probe_jobs(cluster: ClusterSpec) -> ProbeJobs:
    """For a cluster's places: its GPUs, then its nodes without one. A burst takes of each node one before any node's second."""
    rounds = [turn for node in cluster.nodes for turn in range(len(node.devices))]
    places = [True] * len(rounds) + [False] * sum(not node.devices for node in cluster.nodes)
    rounds += [0] * (len(places) - len(rounds))
    many = sorted(enumerate(places), key=lambda numbered: rounds[numbered[0]])[:WIDE]
    some = many[:BURST]
    visits = [_FIRST_VISIT_S + _BETWEEN_S * number for number in range(VISITS)]
    host = _yielding("yields", 0, gpu=places[0])
    jobs = ProbeJobs(
        warm_up=tuple(_job(f"warm-up-{place}", user_of(place), gpu=gpu) for place, gpu in some),
        alone=tuple(
            _job(f"alone-{n}", user_of(n % len(some)), gpu=some[n % len(some)][1], submit_s=n * _BETWEEN_ALONE_S)
            for n in range(ALONE)
        ),
        burst=tuple(_job(f"burst-{place}", user_of(place), gpu=gpu) for place, gpu in some),
        wide=tuple(_job(f"wide-{place}", user_of(place), gpu=gpu) for place, gpu in many if len(many) > BURST),
        chain=tuple(_job(f"chain-{number}", user_of(0), gpu=places[0]) for number in range(CHAIN)),
        yielding=(
            host,
            *(_job(f"visit-{n}", user_of(0), gpu=places[0], submit_s=at_s) for n, at_s in enumerate(visits)),
        ),
        together=_together(some) if len(some) > 1 else (),
    )
    rows = count()
    return ProbeJobs(*(tuple(replace(job, row=next(rows)) for job in phase) for phase in jobs.phases))


def probes_of(jobs: ProbeJobs, told: Iterable[Told], decisions: Sequence[Decision], coalesce_s: float) -> Probes:
    """What the probes showed; those that didn't finish, or of which the log told nothing, are left out."""
    by_id = {one.job_id: one for one in told if one.settled and one.stays and one.submitted_ns is not None}
    runs = {
        job.job_id: _runs(job, by_id[job.job_id], decisions)
        for phase in jobs.phases
        for job in phase
        if job.job_id in by_id
    }

    def of(phase: Iterable[JobSpec]) -> list[ProbeRun]:
        return [run for job in phase for run in runs.get(job.job_id, ())]

    host, *visitors = (job.job_id for job in jobs.yielding)
    return Probes(
        alone=of(jobs.alone),
        burst=of(jobs.burst),
        wide=of(jobs.wide),
        chain=sorted(of(jobs.chain), key=lambda run: run.begin_ns),
        stops=_stops(host, runs, visitors, decisions),
        together=[
            stop
            for host, visitor in _pairs(jobs.together)
            for stop in _stops(host.job_id, runs, [visitor.job_id], decisions)
        ],
        coalesce_s=coalesce_s,
        planned={
            **{kind: len(getattr(jobs, kind)) for kind in ("alone", "burst", "wide", "chain")},
            "stops": len(visitors),
            "together": len(jobs.together) // 2,
        },
    )


def _yielding(job_id: str, place: int, *, gpu: bool) -> JobSpec:
    return _job(job_id, user_of(place, yields=True), gpu=gpu, steps=_YIELD_STEPS, step_s=YIELD_STEP_S)


def _together(places: Sequence[tuple[int, bool]]) -> tuple[JobSpec, ...]:
    """All that yield, then in the same order their visitors."""
    hosts = (_yielding(f"gives-{place}", place, gpu=gpu) for place, gpu in places)
    visitors = (_job(f"takes-{place}", user_of(place), gpu=gpu, submit_s=_TOGETHER_S) for place, gpu in places)
    return (*hosts, *visitors)


def _pairs(together: Sequence[JobSpec]) -> Iterable[tuple[JobSpec, JobSpec]]:
    """Each that yields, with its visitor."""
    half = len(together) // 2
    return zip(together[:half], together[half:], strict=True)


def _job(
    job_id: str,
    user: str,
    *,
    gpu: bool,
    submit_s: float = 0.0,
    steps: int = 1,
    step_s: float = STEP_S,
) -> JobSpec:
    way = Configuration("gpu", 1, _CPU_MILLI) if gpu else Configuration("cpu", 0, _CPU_MILLI)
    return JobSpec(job_id, user, submit_s, steps, (way,), {way.name: TimedWork(step_s * steps)}, row=0)


def _runs(job: JobSpec, told: Told, decisions: Iterable[Decision]) -> list[ProbeRun]:
    """Each run with the decision that began it; its steps tell when its first one began."""
    (work,) = job.work.values()
    assert isinstance(work, TimedWork)
    step_ns = to_ns(work.duration_s) // job.steps
    asked = [decision.at_ns for decision in decisions if job.job_id in decision.started]
    found = []
    for at_ns, stay in zip(asked, told.stays, strict=False):
        found.append(ProbeRun(told.submitted_ns or 0, at_ns, stay.until_ns - stay.steps * step_ns, stay.until_ns))
    return found if len(asked) == len(told.stays) else []


def _stops(
    host: str, runs: Mapping[str, Sequence[ProbeRun]], visitors: Sequence[str], decisions: Sequence[Decision]
) -> list[ProbeStop]:
    asked = [decision for decision in decisions if host in decision.stopped]
    own = runs.get(host, ())
    if len(own) != len(asked) + 1:
        return []  # it did not go as planned: nobody can tell which stop ended which run
    visits = sorted(run.asked_ns for visitor in visitors for run in runs.get(visitor, ()))
    found = []
    for decision, (before, after) in zip(asked, pairwise(own), strict=True):
        nexts = [visit for visit in visits if decision.at_ns <= visit <= after.asked_ns]
        if nexts:
            others = len(decision.stopped) - 1
            found.append(ProbeStop(decision.at_ns, before.end_ns, nexts[0], after, others))
    return found
