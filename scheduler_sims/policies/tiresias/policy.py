"""Tiresias' policies: jobs of an earlier queue run first, and take the devices of jobs of later ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import ClassVar

from emulator_runtime.domain.errors import InputError, UnknownNameError
from scheduler_sims.interface.handed import Handed, taken
from scheduler_sims.interface.plan import Allocation, Plan
from scheduler_sims.interface.view import ClusterView, JobView, Phase
from scheduler_sims.policies.departures import Departures, Timeline
from scheduler_sims.policies.placing import main_configuration
from scheduler_sims.policies.preempting import Room
from scheduler_sims.policies.tiresias.gittins import DELTA, Table, read_samples
from scheduler_sims.policies.tiresias.queues import Bookkeeping, Queues, Rules
from scheduler_sims.policies.waiting import Lines, Order, Waiting, answer

FIDELITIES = ("strict", "as_coded")
LIMITS = "3250/7200"
"""Of Tiresias' simulator: the first limit is 3,250 GPU-seconds."""


@dataclass(frozen=True, slots=True)
class _Memory:
    """`ended`: service of the jobs that have ended, for a Gittins index without a file; `table`: made from some of them.
    `starts`: of the plan. `places`: of the jobs that run, by that index, when it was last computed."""

    lines: Lines | None
    queues: Queues
    ended: tuple[float, ...] = ()
    table: Table | None = None
    running: Handed[_Running] | None = None
    starts: Mapping[str, Allocation] = field(default_factory=dict)
    places: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Running:
    """The jobs with resources, in order of their ranks, and when those that run will be demoted."""

    departures: Departures = field(default_factory=Departures)
    demotions: Timeline | None = None


_NEW = _Memory(None, Queues())
_NO_NEWS = frozenset(("stopped", "retry"))
"""What happens only because of an earlier plan."""


class Tiresias:
    """Least attained service in queues: by GPU-seconds (2D-LAS), backfill scan over the queues, order of start within one.

    Gu et al., Tiresias, NSDI 2019, section 3.3. `limits`: GPU-seconds at which a job leaves each queue but the last, separated by
    slashes. A waiting job returns to the first queue when it has waited `promote` times as long as it ran since then; 0: never
    (the paper's PROMOTEKNOB). A job that doesn't fit is skipped; running jobs of later places are stopped for those before
    them, and never move. `fidelity` as_coded: demotions of jobs of several GPUs are noticed late, as in Tiresias' simulator.
    """

    needs_estimates: ClassVar[bool] = False
    preemptive: ClassVar[bool] = True

    def __init__(self, limits: str = LIMITS, promote: float = 0.0, fidelity: str = "strict") -> None:
        self._rules = rules_of("tiresias", limits, fidelity, promote=promote)

    def plan(self, view: ClusterView) -> Plan:
        """Starts and stops jobs, and asks to be woken when the next job changes its queue."""
        memory: _Memory = view.state or _NEW
        return _plan(view, memory, self._rules, _by_place)


class Las1d:
    """Least attained service in queues by seconds of running, whatever the number of GPUs; otherwise as `tiresias`.

    (dlas of Tiresias' simulator, which the paper compares with 2D-LAS.)
    """

    needs_estimates: ClassVar[bool] = False
    preemptive: ClassVar[bool] = True

    def __init__(self, limits: str = LIMITS) -> None:
        self._rules = rules_of("las-1d", limits, "strict", by_gpus=False)

    def plan(self, view: ClusterView) -> Plan:
        """Starts and stops jobs, and asks to be woken when the next job changes its queue."""
        memory: _Memory = view.state or _NEW
        return _plan(view, memory, self._rules, _by_place)


class Gittins:
    """The queues of `tiresias`; within one, jobs in order of their Gittins index, the largest first.

    The index is the likelihood that a job ends within the next `delta` GPU-seconds per expected service (gittins.py). It is
    computed anew when a job comes, ends or changes its queue, as in Tiresias' simulator, not when one has only been stopped.
    `history`: a file with the GPU-seconds of earlier jobs, one number a line; without it the jobs that have ended in this run
    serve, read anew whenever their number has doubled, and jobs go in order of submission before the first one has.
    """

    needs_estimates: ClassVar[bool] = False
    preemptive: ClassVar[bool] = True

    def __init__(self, limits: str = LIMITS, delta: float = DELTA, history: str = "", fidelity: str = "strict") -> None:
        self._rules = rules_of("gittins", limits, fidelity)
        if not 0 < delta < 1e12:
            raise InputError("gittins: delta", f"must be GPU-seconds above 0, not {delta!r}")
        self._delta = delta
        self._table = Table.of(read_samples(Path(history)), delta) if history else None

    def plan(self, view: ClusterView) -> Plan:
        """Starts and stops jobs, and asks to be woken when the next job changes its queue."""
        memory: _Memory = view.state or _NEW
        learned = memory if self._table else _learned(view, memory, self._delta)
        table = self._table or learned.table
        known = memory.places if view.triggers <= _NO_NEWS else {}
        places = {job_id: place for job_id, place in known.items() if job_id not in view.changes}
        plan = _plan(view, learned, self._rules, lambda books, job: _by_index(books, job, table, places), lasting=False)
        return replace(plan, state=replace(plan.state, places=places))


def rules_of(name: str, limits: str, fidelity: str, *, by_gpus: bool = True, promote: float = 0.0) -> Rules:
    """The checked options of a policy. Raises InputError that names the option."""
    if fidelity not in FIDELITIES:
        raise UnknownNameError(f"{name}: fidelity", "fidelity", fidelity, FIDELITIES)
    try:
        values = tuple(float(part) for part in limits.split("/"))
    except ValueError:
        values = ()
    if not values or list(values) != sorted({*values}) or not 0 < values[0] <= values[-1] < 1e12:
        raise InputError(
            f"{name}: limits", f"must be seconds above 0 in rising order, such as {LIMITS}, not {limits!r}"
        )
    if not 0 <= promote < 1e12:
        raise InputError(f"{name}: promote", f"must be 0 (never) or a factor above it, not {promote!r}")
    return Rules(values, by_gpus, promote, late=fidelity == "as_coded")


_RankOf = Callable[[Bookkeeping, JobView], float]


def _plan(view: ClusterView, memory: _Memory, rules: Rules, rank_of: _RankOf, *, lasting: bool = True) -> Plan:
    """`lasting`: the rank of a running job stays as it is until it is stopped or demoted."""
    running = (taken(memory.running) if lasting else None) or _Running()
    books = Bookkeeping(view, rules, memory.queues, running.demotions)
    waiting = Waiting(view, None if books.promoted else memory.lines, Order(lambda _view, job: rank_of(books, job)))
    changed: Iterable[str] = books.touched
    if running.demotions is None:
        changed = [job.job_id for job in view.holding()]
    for job_id in changed:
        job = view.jobs.get(job_id)
        if job is None or job.queued:
            running.departures.drop(job_id)
        else:
            running.departures.put(job, inf if job.phase is Phase.STOPPING else rank_of(books, job))
    running.demotions = books.demotions
    room = Room.kept(waiting.space, running.departures)
    scan = waiting.scan(lambda job: room.place(main_configuration(view, job), waiting.rank(job)))
    room.finish()
    stopped = {job.job_id: "stopped: a job of an earlier queue or place needs its devices" for job in room.stopped}
    # A start of the plan before that waits for jobs to stop: its job changes no queue meanwhile, and then there is another plan.
    starting = [job for job, a in scan.starts.items() if memory.starts.get(job) != a or view.has_changed(job, a)]
    return answer(
        view,
        waiting,
        scan,
        "first of its queue among the jobs that fit",
        stopped=stopped,
        wake_at_s=books.wake_at_s(stopped, starting),
        state=_Memory(
            waiting.memory(),
            books.queues,
            memory.ended,
            memory.table,
            Handed([running]) if lasting else None,
            scan.starts,
        ),
    )


def _by_place(books: Bookkeeping, job: JobView) -> float:
    """The rank of a job: its queue and its place there."""
    return books.standing(job).rank


def _by_index(books: Bookkeeping, job: JobView, table: Table | None, places: dict[str, int]) -> float:
    """The rank of a job: its queue, then its index, then the order of submission. `places`: of running jobs by their indices, as
    far as they are known, and then of all."""
    standing = books.standing(job)
    place = places.get(job.job_id)
    if place is None:
        place = table.place(books.service(job)) if table else 0
        if not job.queued:
            places[job.job_id] = place
    return standing.queue * 2.0**46 + place * 2.0**24 + standing.number  # exact below 2**53


def _learned(view: ClusterView, memory: _Memory, delta: float) -> _Memory:
    """The memory with the service of jobs that have just ended; a new table if there are twice as many as in the last one."""
    gone = [memory.queues.jobs[job_id] for job_id in view.changes if _has_left(view, memory.queues.jobs, job_id)]
    if not gone:
        return memory
    services = (standing.ran(view.now_s) * standing.gpus for standing in gone)
    ended = tuple(sorted([*memory.ended, *(service for service in services if service > 0)]))
    if len(ended) < 2 * len(memory.table.samples if memory.table else ()) or not ended:
        return replace(memory, ended=ended)
    return replace(memory, ended=ended, table=Table.of(ended, delta), lines=None)


def _has_left(view: ClusterView, known: Mapping[str, object], job_id: str) -> bool:
    return job_id in known and job_id not in view.jobs
