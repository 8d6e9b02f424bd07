"""The table of probes: which jobs each one submits, and which costs its observations set.

To measure another cost, add a function to estimates.py and name it in an entry here (or add an entry with its own jobs). What
the simulator charges is `ClusterCosts` (scheduler_sims); a measured cost of the same name is passed on to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.job import Configuration, JobSpec, Program, TimedWork
from operators.experiments.calibration import estimates
from operators.experiments.calibration.estimates import Estimate
from operators.experiments.calibration.observations import ProbeJobs
from operators.experiments.calibration.policy import Place, places_of
from scheduler_sims.inputs.cluster_file import ClusterSpec

ALONE, BURST, WIDE, CHAIN, VISITS = 3, 12, 32, 10, 3
STEP_S = 1.0
"""A step of a probe job that doesn't yield; most have one."""
CHAIN_STEP_S = 6.0
"""Run time of a job of the chain. A machine on which nothing happened for some seconds, as between the starts and ends of real
jobs, starts a pod more slowly than one that has just started another: 1.2 s instead of 0.9 s were seen."""
TURN_S, TURN_APART_S = 20.0, 1.0
"""Run time of the jobs of `turnover`, and how far apart the first ones end; multiples of STEP_S."""
YIELD_STEP_S, YIELD_STEPS = 0.1, 300
_BETWEEN_ALONE_S = 9.0
_FIRST_VISIT_S, _BETWEEN_VISITS_S = 7.0, 8.0
_TOGETHER_S = 15.0
"""When the visitors of `together` are submitted: all yielding jobs run by then, and none ends soon."""
_PROGRAMS_S = 15.0
"""When the programs that start at once are submitted: the one that runs alone has ended by then."""
_BUSY = "import time\nwhile time.process_time() < 3: pass"
"""A program that computes for 3 s, as programs do while they start."""
MAX_CPU_MILLI = 1000
"""CPUs of a probe job, where its place has so many."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One entry of the table. `jobs` makes the probe's jobs for the places of a cluster; no job: the cluster is too small for it.

    `description` completes "probe jobs ...". It observes runs, or `stops`; with `one_decision` only those count that one
    decision of the scheduler started (or stopped) together; with `complete` none counts unless all could be observed. `costs`:
    how each cost that this probe sets is computed.
    """

    name: str
    description: str
    jobs: Callable[[Sequence[Place]], ProbeJobs]
    costs: Mapping[str, Estimate] = field(default_factory=dict)
    stops: bool = False
    one_decision: bool = False
    complete: bool = False


def _warm_up(places: Sequence[Place]) -> ProbeJobs:
    return ProbeJobs(tuple(_job(f"warm-up-{place.number}", place) for place in places[:BURST]))


def _alone(places: Sequence[Place]) -> ProbeJobs:
    some = places[:BURST]
    each = (_job(f"alone-{n}", some[n % len(some)], submit_s=n * _BETWEEN_ALONE_S) for n in range(ALONE))
    return ProbeJobs(tuple(each))


def _burst(places: Sequence[Place]) -> ProbeJobs:
    return ProbeJobs(tuple(_job(f"burst-{place.number}", place) for place in places[:BURST]))


def _wide(places: Sequence[Place]) -> ProbeJobs:
    """As `burst`, in more places; none where there are no more."""
    return ProbeJobs(tuple(_job(f"wide-{place.number}", place) for place in places[:WIDE] if len(places) > BURST))


def _chain(places: Sequence[Place]) -> ProbeJobs:
    return ProbeJobs(tuple(_job(f"chain-{number}", places[0], step_s=CHAIN_STEP_S) for number in range(CHAIN)))


def _turnover(places: Sequence[Place]) -> ProbeJobs:
    """Two jobs in each place, of which the first ones end shortly one after the other; none where there is one place."""
    some = places[:BURST] if len(places) > 1 else ()
    first = (_turning(f"ends-{p.number}", p, TURN_S + TURN_APART_S * turn) for turn, p in enumerate(some))
    second = (_turning(f"follows-{place.number}", place, TURN_S) for place in some)
    return ProbeJobs((*first, *second))


def _stops(places: Sequence[Place]) -> ProbeJobs:
    """One yielding job, which several visitors stop one after the other."""
    host = _yielding("yields", places[0])
    times_s = (_FIRST_VISIT_S + _BETWEEN_VISITS_S * number for number in range(VISITS))
    visitors = tuple(_job(f"visit-{n}", places[0], submit_s=at_s) for n, at_s in enumerate(times_s))
    return ProbeJobs((host, *visitors), ((host.job_id, tuple(visitor.job_id for visitor in visitors)),))


def _together(places: Sequence[Place]) -> ProbeJobs:
    """A yielding job in each place, then a visitor for each of them, all visitors at once; none where there is one place."""
    some = places[:BURST] if len(places) > 1 else ()
    hosts = tuple(_yielding(f"gives-{place.number}", place) for place in some)
    visitors = tuple(_job(f"takes-{place.number}", place, submit_s=_TOGETHER_S) for place in some)
    pairs = tuple((host.job_id, (visitor.job_id,)) for host, visitor in zip(hosts, visitors, strict=True))
    return ProbeJobs((*hosts, *visitors), pairs)


def _programs(places: Sequence[Place]) -> ProbeJobs:
    """A program that computes alone, then one in each place with a GPU; none where there is one such place."""
    some = [place for place in places if place.gpu][:BURST]
    if len(some) < 2:
        return ProbeJobs()
    alone = _job("computes", some[0])
    together = [_job(f"computes-{place.number}", place, submit_s=_PROGRAMS_S) for place in some]
    program = Program(("python3", "-c", _BUSY))
    return ProbeJobs(tuple(replace(job, program=program) for job in (alone, *together)))


_STARTS: Mapping[str, Estimate] = {
    "serial_start_s": estimates.serial_start_s,
    "host_slots": estimates.host_slots,
}
_TURNOVER: Mapping[str, Estimate] = {"host_slots": estimates.host_slots}
_CHAIN: Mapping[str, Estimate] = {
    "start_s": estimates.start_s,
    "finish_s": estimates.finish_s,
    "serial_submit_s": estimates.serial_submit_s,
    "arrive_s": estimates.arrive_s,
}
_STOPS: Mapping[str, Estimate] = {"stop_s": estimates.stop_s, "restart_s": estimates.restart_s}
_TOGETHER: Mapping[str, Estimate] = {
    "serial_stop_s": estimates.serial_stop_s,
    "shared_stop_s": estimates.shared_stop_s,
}
_PROGRAMS: Mapping[str, Estimate] = {
    "program_start_s": estimates.program_start_s,
    "program_slots": estimates.program_slots,
}
PROBES: tuple[Probe, ...] = (
    Probe("warm_up", "of the warm-up", _warm_up),
    Probe("alone", "submitted alone", _alone, {"submit_s": estimates.submit_s}),
    Probe("burst", "started at once", _burst, _STARTS, one_decision=True),
    Probe("wide", "of the larger burst", _wide, _STARTS, one_decision=True),
    Probe("chain", "started one after the other", _chain, _CHAIN),
    Probe("turnover", "that end shortly one after the other", _turnover, _TURNOVER, complete=True),
    Probe("stops", "stopped alone", _stops, _STOPS, stops=True),
    Probe("together", "stopped at once", _together, _TOGETHER, stops=True, one_decision=True),
    Probe("programs", "that compute", _programs, _PROGRAMS, complete=True),
)
"""In the order in which they run, each after the one before. `warm_up` sets no cost: the first start on a node is slow."""


def probe_jobs(cluster: ClusterSpec, image: str = "", probes: Sequence[Probe] = PROBES) -> dict[str, ProbeJobs]:
    """The jobs of each probe that has any on this cluster; those that run programs do so in `image`, and only if there is one.

    Raises InputError where a node has no CPUs for a probe job.
    """
    places = places_of(cluster)
    if not places:
        raise InputError("calibration", "the cluster's pools have no node; `kubectl get emugpupools` shows them")
    for place in places:
        if place.share_milli < 1:
            fix = "give its pool emulated CPUs: `emugpu cluster up --emulated-cpus N`, or spec.emulated.cpu"
            raise InputError("calibration", f"node {place.node} has no CPUs for a probe job on each of its GPUs; {fix}")
    rows = count()
    made = {probe.name: probe.jobs(places) for probe in probes}
    return {
        name: replace(each, jobs=tuple(replace(_in_image(job, image), row=next(rows)) for job in each.jobs))
        for name, each in made.items()
        if each.jobs and (image or each.jobs[0].program is None)
    }


def _in_image(job: JobSpec, image: str) -> JobSpec:
    return job if job.program is None else replace(job, program=replace(job.program, image=image))


def _turning(job_id: str, place: Place, duration_s: float) -> JobSpec:
    """In many steps, since pools whose devices are shared refuse long ones."""
    return _job(job_id, place, steps=round(duration_s / STEP_S))


def _yielding(job_id: str, place: Place) -> JobSpec:
    return _job(job_id, place, yields=True, steps=YIELD_STEPS, step_s=YIELD_STEP_S)


def _job(
    job_id: str,
    place: Place,
    *,
    submit_s: float = 0.0,
    steps: int = 1,
    step_s: float = STEP_S,
    yields: bool = False,
) -> JobSpec:
    """It asks for no more CPUs than its place has, so that a job in each place of a node always fits."""
    cpu_milli = min(MAX_CPU_MILLI, place.share_milli)
    way = Configuration("gpu", 1, cpu_milli) if place.gpu else Configuration("cpu", 0, cpu_milli)
    tenant = place.tenant(yields=yields)
    return JobSpec(job_id, tenant, submit_s, steps, (way,), {way.name: TimedWork(step_s * steps)}, row=0)
