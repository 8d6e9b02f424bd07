"""Quotas of tenants with borrowing: idle GPUs of one tenant run jobs of others, until it wants them back.

The rules are those of a cohort of Kueue's ClusterQueues (kueue.sigs.k8s.io, Concepts: Cluster Queue) with `nominalQuota`,
`borrowingLimit`, `reclaimWithinCohort: Any` and `queueingStrategy: BestEffortFIFO`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import ClassVar

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.wording import quoted
from scheduler_sims.interface.plan import Plan
from scheduler_sims.interface.view import ClusterView, JobView, Phase
from scheduler_sims.policies.placing import main_configuration
from scheduler_sims.policies.queueing.in_order import in_order

_OTHERS = "*"


@dataclass(frozen=True, slots=True)
class _Claim:
    """A job that may run. `over`: how many GPUs above its quota its tenant has with this job; 0 or less is within it."""

    job: JobView
    over: int


class Quota:
    """Each tenant has a quota of GPUs; what it leaves idle others borrow, and it takes that back by preemption.

    `gpus`: the quotas, as `alice:8;bob:4;*:2`, where `*` stands for each other tenant (0 if it is left out); empty: equal parts
    of the cluster's GPUs for all tenants that have jobs. `borrow`: how many GPUs a tenant may have above its quota (-1: any
    number).

    - A tenant's jobs go in order of submission; one that doesn't fit its quota doesn't hold up those behind it that do.
    - A job within its tenant's quota takes the GPUs of jobs that borrow, first of the tenant that has borrowed most, of its
      jobs the one that started last. It stops no other job. A job that borrows stops none.
    - Jobs that may borrow start on idle GPUs, first those of the tenant that has borrowed least.
    - A running job counts with all its GPUs; it borrows as a whole if its tenant is above the quota with it.
    """

    needs_estimates: ClassVar[bool] = False
    preemptive: ClassVar[bool] = True

    def __init__(self, gpus: str = "", borrow: int = -1) -> None:
        if borrow < -1:
            raise InputError("quota: borrow", f"must be a number of GPUs, or -1 for any number, not {borrow}")
        self._quotas = _parsed(gpus)
        self._most = borrow

    def plan(self, view: ClusterView) -> Plan:
        """Starts and stops jobs; gives the reason of each job that waits for its tenant's quota."""
        jobs: dict[str, list[JobView]] = {}
        for job in view.jobs.values():
            if job.queued or (job.allocation is not None and job.phase is not Phase.STOPPING):
                jobs.setdefault(job.user, []).append(job)
        quotas = self._quotas or _equal_parts(view, jobs)
        running, waiting, refused = list[_Claim](), list[_Claim](), dict[str, str]()
        for tenant, of_tenant in jobs.items():
            quota = quotas.get(tenant, quotas.get(_OTHERS, 0))
            over, beyond = -quota, list[tuple[JobView, int]]()
            for job in sorted(of_tenant, key=_in_turn):
                gpus = job.allocation.gpus if job.allocation else main_configuration(view, job).total_gpus
                if job.queued and over + gpus > 0:
                    beyond.append((job, gpus))
                    continue
                over += gpus
                (waiting if job.queued else running).append(_Claim(job, over if gpus else 0))
            for job, gpus in beyond:
                if gpus and 0 <= self._most < over + gpus:
                    refused[job.job_id] = f"waits for {gpus} GPUs: {tenant} has {quota + over} of {self._limit(quota)}"
                    continue
                over += gpus
                waiting.append(_Claim(job, over if gpus else 0))
        order = [*_within(running), *_within(waiting), *_borrowing(running), *_borrowing(waiting)]
        plan = in_order(view, order, "within its tenant's quota, or on GPUs that are idle")
        return replace(plan, reasons={**plan.reasons, **refused}) if refused else plan

    def _limit(self, quota: int) -> str:
        return f"its quota of {quota}" + (f" and {self._most} that it may borrow" if self._most else "")


def _in_turn(job: JobView) -> tuple[bool, float, tuple[float, int]]:
    """Running jobs first, in the order of their starts; then waiting ones in order of submission."""
    since_s = inf if job.queued or job.running_since_s is None else job.running_since_s
    return (job.queued, since_s, job.order)


def _within(claims: Iterable[_Claim]) -> list[JobView]:
    return sorted((claim.job for claim in claims if claim.over <= 0), key=lambda job: job.order)


def _borrowing(claims: Iterable[_Claim]) -> list[JobView]:
    return [c.job for c in sorted(claims, key=lambda c: (c.over, c.job.order)) if c.over > 0]


def _equal_parts(view: ClusterView, tenants: Iterable[str]) -> Mapping[str, int]:
    names = list(tenants)
    gpus = sum(device.healthy for node in view.nodes.values() for device in node.devices)
    return dict.fromkeys(names, gpus // max(1, len(names)))


def _parsed(text: str) -> Mapping[str, int]:
    """Raises InputError with the part that is wrong."""
    quotas: dict[str, int] = {}
    for part in text.split(";") if text else ():
        tenant, colon, number = (piece.strip() for piece in part.rpartition(":"))
        if not colon or not tenant or not (number.isascii() and number.isdigit()):
            raise InputError("quota: gpus", f"{quoted(part)} is no quota; write TENANT:GPUS, such as alice:8;bob:4;*:2")
        if tenant in quotas:
            raise InputError("quota: gpus", f"tenant {quoted(tenant)} is given twice")
        quotas[tenant] = int(number)
    return quotas
