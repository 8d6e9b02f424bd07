"""Gavel's rounds: shares of time are computed when jobs came or left, and every round runs the jobs that are behind theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

from emulator_runtime.domain.errors import InputError, PolicyError, UnknownNameError
from emulator_runtime.profiles.catalogue import bundled_catalogue
from scheduler_sims.interface.plan import Allocation, Plan
from scheduler_sims.interface.rounds import Rounds
from scheduler_sims.interface.view import ClusterView
from scheduler_sims.policies.gavel.credit import Credit, Slots, choose
from scheduler_sims.policies.gavel.seating import capacity, gpu_configuration, rates, seats
from scheduler_sims.policies.option_values import checked_seconds

if TYPE_CHECKING:
    from scheduler_sims.policies.gavel.objectives import Objective
    from scheduler_sims.policies.gavel.problem import Problem

STRICT, AS_CODED = "strict", "as_coded"
LEAST_ROUND_S = 0.1
_SLACK_S = 1e-6


@dataclass(frozen=True, slots=True)
class Memory:
    """The state. `targets`: allocations of the present round; `attained_gpu_s`: of these jobs when it began.

    `changed`: jobs came or left since the last reset. `rates`: steps per second by job and GPU type; `gpus`: of each job.
    `solver`: memory of the objective. `begun`: number of rounds so far.
    """

    round: int = -1
    begun: int = 0
    types: tuple[str, ...] = ()
    targets: Mapping[str, Allocation] = field(default_factory=dict)
    attained_gpu_s: Mapping[str, float] = field(default_factory=dict)
    changed: bool = True
    credit: Credit = field(default_factory=Credit)
    rates: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    gpus: Mapping[str, int] = field(default_factory=dict)
    solver: Any = None


class Gavel:
    """Shares of time on each GPU type, optimised for `objective`, realised by rounds of `round_s`.

    Narayanan et al., OSDI 2020. `objective`: max-min, water-filling, finish-time, makespan, throughput, cost, isolated, fifo,
    allox. Shares are computed anew when jobs have come or left, but not sooner than `reset_s` after the last time; until then
    a new job runs only on GPUs that others leave. Jobs submitted during a round wait until it ends, unless nothing runs; GPUs of
    jobs that end during a round stay idle. `aware` false: the shares don't depend on the jobs' speeds. `prices` of GPUs per hour
    for objective cost, such as V100:2.48|K80:0.45. `fidelity` as_coded: new jobs don't run before the next reset, and the first
    change of jobs resets at once; `seed` is that of Gavel's random order of GPU types where `aware` is false.
    """

    needs_estimates: ClassVar[bool] = True
    preemptive: ClassVar[bool] = True

    def __init__(
        self,
        objective: str = "max-min",
        *,
        fidelity: str = STRICT,
        aware: bool = True,
        round_s: float = 360.0,
        reset_s: float = 1920.0,
        prices: str = "",
        seed: int = 0,
    ) -> None:
        if fidelity not in (STRICT, AS_CODED):
            raise UnknownNameError("gavel: fidelity", "fidelity", fidelity, (STRICT, AS_CODED))
        objectives: Mapping[str, Objective] = _solver().OBJECTIVES
        if objective not in objectives:
            raise UnknownNameError("gavel: objective", "objective", objective, objectives)
        self.round_s = checked_seconds("gavel: round_s", round_s, least=LEAST_ROUND_S)
        self.reset_s = checked_seconds("gavel: reset_s", reset_s)
        self.rounds = Rounds(self.round_s)
        self._objective, self._solve = objective, objectives[objective]
        self._as_coded, self._aware = fidelity == AS_CODED, aware
        self._prices = _prices(prices)
        self._random, self._orders = Random(seed + 5), list[list[int]]()

    def plan(self, view: ClusterView) -> Plan:
        """A new choice of jobs when a round begins or nodes change; otherwise the same plan for the remaining jobs."""
        memory: Memory = view.state if view.state is not None else Memory()
        if view.round is None:
            raise PolicyError("gavel needs rounds: a policy that calls it needs its attribute `rounds`, too")
        idle = not any(job_id in view.jobs for job_id in memory.targets)
        begins = view.round.number > memory.round or "node" in view.triggers or bool(idle and view.jobs)
        if begins:
            memory = self._begin(view, memory, view.round.number)
        held = view.plan.allocations
        start = {
            job: a
            for job, a in memory.targets.items()
            if (begins or view.news_of(job, a)) and job in view.jobs and not (job in held and a.same_place(held[job]))
        }
        stop = [job for job in held if job not in memory.targets or job not in view.jobs]
        reasons = {job: self._why(memory, job, allocation.gpu_type or "") for job, allocation in start.items()}
        reasons |= dict.fromkeys(stop, f"round {memory.round}: other jobs are further behind their shares")
        return view.plan.evolve(start=start, stop=stop, state=memory, reasons=reasons)

    def _begin(self, view: ClusterView, last: Memory, number: int) -> Memory:
        available = capacity(view)
        types = tuple(available)
        if types != last.types:
            last = Memory(begun=last.begun, types=types)
        last_rates = {} if "node" in view.triggers else last.rates
        everyone = {j: last_rates.get(j) or rates(view, job, types, "gavel") for j, job in view.jobs.items()}
        known = {job_id: each for job_id, each in everyone.items() if any(each)}  # others wait for nodes that are away
        gpus = {j: last.gpus.get(j) or gpu_configuration(view, view.jobs[j], "gavel").total_gpus for j in known}
        changed = last.changed or known.keys() != last.rates.keys() or "node" in view.triggers
        half_s = self.round_s / 2
        credit = last.credit.updated(list(known), len(types), _ran(view, last), half_s)
        solver = last.solver
        if changed and known and self._may_reset(view.now_s, credit, known):
            shares, solver = self._solve(self._problem(view, available, known, gpus), solver)
            credit, changed = credit.reset(view.now_s, shares, half_s), False
        slots = Slots(list(available.values()), self._order(last.begun, len(types)))
        chosen = choose(
            credit, slots, gpus, known, shares_only=self._objective == "fifo", newcomers_wait=self._as_coded
        )
        targets = seats(view, {job: types[index] for job, index in chosen.items()}, "gavel")
        attained = {job: view.attained_gpu_s(view.jobs[job]) for job in targets}
        return Memory(number, last.begun + 1, types, targets, attained, changed, credit, known, gpus, solver)

    def _may_reset(self, now_s: float, credit: Credit, present: Mapping[str, Sequence[float]]) -> bool:
        if credit.reset_s is None or not any(sum(share) for job, share in credit.shares.items() if job in present):
            return True  # nobody has a share any more
        if self._as_coded and credit.reset_s == 0:
            return True  # Gavel takes a reset at 0 s for none at all
        return now_s - credit.reset_s >= self.reset_s - _SLACK_S

    def _problem(
        self,
        view: ClusterView,
        available: Mapping[str, int],
        known: Mapping[str, tuple[float, ...]],
        gpus: Mapping[str, int],
    ) -> Problem:
        module, types = _arrays(), tuple(available)
        jobs = [view.jobs[job_id] for job_id in known]
        speeds = module.array(list(known.values()))
        unknown = [kind for kind in types if self._prices and kind not in self._prices]
        if unknown:
            raise PolicyError(f"gavel: option prices has no price of {unknown[0]}; it has {', '.join(self._prices)}")
        problem: Problem = module.Problem(
            jobs=tuple(known),
            types=types,
            rates=speeds if self._aware else (speeds > 0).astype(float),
            gpus=module.array(list(gpus.values())),
            capacity=module.array(list(available.values())),
            weights=module.array([job.weight for job in jobs]),
            steps_left=module.array([max(0, job.steps_total - view.steps_done(job)) for job in jobs]),
            age_s=module.array([view.now_s - job.submit_s for job in jobs]),
            prices=module.array([self._prices.get(kind, 1.0) for kind in types]),
        )
        return problem

    def _order(self, begun: int, types: int) -> list[int]:
        """The order in which GPU types get their jobs: as in the cluster, or drawn for each round."""
        if self._aware:
            return list(range(types))
        while len(self._orders) <= begun or len(self._orders[begun]) != types:
            if len(self._orders) > begun:  # the number of types has changed
                self._orders.clear()
            order = list(range(types))
            self._random.shuffle(order)
            self._orders.append(order)
        return self._orders[begun]

    def _why(self, memory: Memory, job: str, kind: str) -> str:
        share = memory.credit.share(job, memory.types.index(kind))
        return f"round {memory.round}: {kind}, where its share of time is {share:.2f}"


def _ran(view: ClusterView, last: Memory) -> dict[str, tuple[int, float]]:
    """GPU type and seconds of each job that ran since the last round began."""
    ran = {}
    for job_id, allocation in last.targets.items():
        if job_id in view.jobs and allocation.gpus:
            gpu_s = view.attained_gpu_s(view.jobs[job_id]) - last.attained_gpu_s[job_id]
            ran[job_id] = (last.types.index(allocation.gpu_type or ""), gpu_s / allocation.gpus)
    return ran


def _solver() -> Any:
    """The objectives; NumPy, SciPy and HiGHS are loaded only for a policy that is used."""
    try:
        import scipy.optimize  # noqa: F401

        return import_module("scheduler_sims.policies.gavel.objectives")
    except ImportError as error:
        raise PolicyError("gavel needs NumPy, SciPy and highspy: pip install 'emugpu[scheduler]'") from error


def _arrays() -> Any:
    return import_module("scheduler_sims.policies.gavel.problem")


def _prices(text: str) -> dict[str, float]:
    """The prices in an option such as V100:2.48|K80:0.45, by the name given and by the catalogue's. Raises InputError."""
    prices, catalogue = dict[str, float](), bundled_catalogue()
    for part in text.split("|") if text else ():
        kind, _, value = part.partition(":")
        try:
            price = float(value)
        except ValueError:
            price = 0.0
        if not price > 0:
            raise InputError("gavel: prices", f"{part!r} is no price above 0; write TYPE:PRICE|TYPE:PRICE")
        prices[kind.strip()] = prices[catalogue.find(kind.strip()) or kind.strip()] = price
    return prices
