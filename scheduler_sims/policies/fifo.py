"""FIFO: the baseline of comparisons, and the default of most clusters."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import ClassVar

from emulator_runtime.domain.errors import UnknownNameError
from scheduler_sims.interface.plan import Plan
from scheduler_sims.interface.view import ClusterView
from scheduler_sims.policies.placing import main_configuration
from scheduler_sims.policies.queueing.backfill import backfilled
from scheduler_sims.policies.waiting import Order, Waiting, answer, one_line

_ORDERS = {"none": Order(rank=lambda _view, _job: 0.0, line=one_line), "any": Order(rank=lambda _view, _job: 0.0)}
_RESERVATIONS: Mapping[str, float] = {"easy": 1, "conservative": inf}


class Fifo:
    """Jobs start in order of submission; running jobs aren't stopped. `backfill` says who may overtake a job that doesn't fit.

    none: nobody. any: every job that fits. easy: jobs that don't delay the first waiting job, by estimated run times.
    conservative: jobs that delay no waiting job.
    """

    needs_estimates: bool = False
    preemptive: ClassVar[bool] = False
    backfill: str = "none"
    """Of derived policies that have options of their own, too."""

    def __init__(self, backfill: str = "none") -> None:
        known = (*_ORDERS, *_RESERVATIONS)
        if backfill not in known:
            raise UnknownNameError("fifo: backfill", "backfill", backfill, known)
        self.backfill = backfill
        self.needs_estimates = backfill in _RESERVATIONS

    def plan(self, view: ClusterView) -> Plan:
        """Starts jobs in order of submission, and those that may overtake."""
        if self.backfill in _RESERVATIONS:
            return backfilled(view, _RESERVATIONS[self.backfill])
        waiting = Waiting(view, view.state, _ORDERS[self.backfill])
        scan = waiting.scan(lambda job: waiting.space.place(main_configuration(view, job)))
        return answer(view, waiting, scan, "next in order of submission")
