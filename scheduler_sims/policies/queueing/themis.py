"""Themis as simulators play it: shares that make the most unfair job as fair as possible, given out by priority.

Mahajan et al., Themis, NSDI 2020, has an auction of leases; its code isn't public. Gavel and Muri stand in for it with this
optimisation of finish-time fairness; here it follows Rivendile/Muri at 4e69a78 (themis_sim_jobs of its simulator).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import ClassVar

from emulator_runtime.domain.errors import UnknownNameError
from scheduler_sims.interface.plan import Plan
from scheduler_sims.interface.view import ClusterView
from scheduler_sims.policies.placing import main_configuration
from scheduler_sims.policies.queueing.in_order import decides, in_order
from scheduler_sims.policies.waiting import checked_s

_FIDELITIES = ("strict", "as_coded")
_LEAST = 1e-12


@dataclass(frozen=True, slots=True)
class Claim:
    """A job's claim: `age_s` since its submission, `left_s` of running alone, and `alone`, its finish time with an equal share of
    the cluster, from its submission on."""

    gpus: int
    age_s: float
    left_s: float
    alone: float

    def share(self, ratio: float) -> float:
        """The share of time with which the job finishes `ratio` times as late as alone; above 1: it can't."""
        spare = ratio * self.alone - self.age_s
        return self.left_s / spare if spare > 0 else 2.0


def fair_shares(claims: Sequence[Claim], gpus: int) -> list[float]:
    """The shares of time (0 to 1) that minimise the largest ratio of finish time to that alone, by bisection.

    All jobs get the share for that ratio, so that what nobody needs for it isn't given out.
    """

    def fits(ratio: float) -> bool:
        used = 0.0
        for claim in claims:
            share = claim.share(ratio)
            used += claim.gpus * share
            if share > 1 or used > gpus:
                return False
        return True

    low, high = 0.0, 1.0
    while not fits(high):
        low, high = high, high * 2
    while high - low > _LEAST * high:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if fits(middle) else (middle, high)
    return [claim.share(high) for claim in claims]


@dataclass(frozen=True, slots=True)
class _Account:
    """Of one job at the last decision: what it had left, its equal share, its finish time alone so far, and its deficit."""

    left: float
    equal: float
    alone: float = 0.0
    due_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Memory:
    at_s: float = 0.0
    accounts: Mapping[str, _Account] = field(default_factory=dict)
    order: tuple[str, ...] = ()


class Themis:
    """At each arrival and end: shares of time that minimise the worst finish-time fairness; jobs with the largest share per time
    received go first.

    A job that hasn't run goes before all that have; ties: the larger deficit, then the larger share. Backfill scan with
    preemption; running jobs never move. `fidelity` as_coded: the time alone counts iterations where seconds are meant, as in
    Muri's simulator.
    """

    needs_estimates: ClassVar[bool] = True
    preemptive: ClassVar[bool] = True

    def __init__(self, fidelity: str = "strict") -> None:
        if fidelity not in _FIDELITIES:
            raise UnknownNameError("themis: fidelity", "fidelity", fidelity, _FIDELITIES)
        self._by_steps = fidelity == "as_coded"

    def plan(self, view: ClusterView) -> Plan:
        """Starts and stops jobs. Raises PolicyError for an estimate that isn't a finite time."""
        memory: _Memory = view.state or _Memory()
        if decides(view) or not memory.order:
            memory = self._decide(view, memory)
        order = [view.jobs[job_id] for job_id in memory.order if job_id in view.jobs]
        return in_order(view, order, "largest fair share per time received", state=memory)

    def _decide(self, view: ClusterView, memory: _Memory) -> _Memory:
        jobs = list(view.jobs.values())
        total = max(1, sum(device.healthy for node in view.nodes.values() for device in node.devices))
        accounts: dict[str, _Account] = {}
        claims = []
        for job in jobs:
            wanted = main_configuration(view, job)
            gpus = max(1, wanted.total_gpus)
            left_s = max(_LEAST, checked_s(job, view.remaining_s(job, wanted.name)))
            left = max(_LEAST, float(job.steps_total - view.steps_done(job))) if self._by_steps else left_s
            equal = min(1.0, ceil(total / len(jobs)) / gpus)
            old = memory.accounts.get(job.job_id)
            alone = old.alone + (old.left - left) / old.equal if old else 0.0
            due_s = old.due_s if old else 0.0
            accounts[job.job_id] = _Account(left, equal, alone, due_s)
            claims.append(Claim(gpus, view.now_s - job.submit_s, left_s, alone + left / equal))
        shares = fair_shares(claims, max(total, max((claim.gpus for claim in claims), default=1)))
        passed_s = view.now_s - memory.at_s if memory.accounts else 0.0
        ranked = []
        for job, claim, share in zip(jobs, claims, shares, strict=True):
            ran_s = view.attained_gpu_s(job) / claim.gpus
            old = accounts[job.job_id]
            priority = share / ran_s if ran_s > 0 else share * 1e9
            ranked.append((-priority, ran_s - old.due_s, -share, job.order, job.job_id))
            accounts[job.job_id] = _Account(old.left, old.equal, old.alone, old.due_s + share * passed_s)
        return _Memory(view.now_s, accounts, tuple(job_id for *_, job_id in sorted(ranked)))
