"""FIFO: the baseline of comparisons, and the default of most clusters."""

from __future__ import annotations

from typing import ClassVar

from scheduler_sims.interface.plan import Plan
from scheduler_sims.interface.view import ClusterView
from scheduler_sims.policies.placing import main_configuration
from scheduler_sims.policies.waiting import Order, Waiting, answer, one_line

_ORDER = Order(rank=lambda _view, _job: 0.0, line=one_line)


class Fifo:
    """Jobs start in order of submission; no job overtakes one that doesn't fit, and running jobs aren't stopped."""

    needs_estimates: ClassVar[bool] = False
    preemptive: ClassVar[bool] = False

    def plan(self, view: ClusterView) -> Plan:
        """Starts jobs from the head of the queue until one doesn't fit."""
        waiting = Waiting(view, view.state, _ORDER)
        scan = waiting.scan(lambda job: waiting.space.place(main_configuration(view, job)))
        return answer(view, waiting, scan, "next in order of submission")
