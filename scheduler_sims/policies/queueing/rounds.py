"""Rounds for any policy: it decides at the beginning of each round, and its plan holds until the next one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from emulator_runtime.domain.errors import InputError, PolicyError
from scheduler_sims.interface.plan import Allocation, Plan
from scheduler_sims.interface.policy import Policy
from scheduler_sims.interface.rounds import Rounds
from scheduler_sims.interface.view import ClusterView
from scheduler_sims.policies.option_values import checked_seconds

_LEAST_ROUND_S = 0.1


@dataclass(frozen=True, slots=True)
class _Memory:
    """`target`: the allocations of the round; `inner`: state of the policy; `changes`: of jobs since it was asked."""

    number: int = -1
    target: Mapping[str, Allocation] = field(default_factory=dict)
    inner: Any = None
    changes: frozenset[str] = frozenset()


class InRounds:
    """The policy `of` decides every `round_s` only, as the testbeds of Gavel (360 s), Muri (360 s) and Synergy (300 s) do.

    Jobs submitted during a round wait until it ends, and devices of jobs that end during a round stay idle. `of`: the name of a
    policy, with options as `srtf` or `tiresias;promote=2`. The first round begins at `first_s`.
    """

    needs_estimates: bool = False
    preemptive: bool = True

    def __init__(self, of: str = "fifo", round_s: float = 360.0, first_s: float = 0.0) -> None:
        from scheduler_sims.policies.resolve import resolve_policy  # it imports the table that has this class

        name, _, options = of.partition(";")
        if name == "rounds":
            raise InputError("rounds: of", "must be another policy than rounds")
        self._policy: Policy = resolve_policy(f"{name}:{options.replace(';', ',')}" if options else name)[1]
        if getattr(self._policy, "rounds", None) is not None:
            raise InputError("rounds: of", f"{name} has rounds of its own: give it its own option")
        self.rounds = Rounds(
            checked_seconds("rounds: round_s", round_s, least=_LEAST_ROUND_S),
            checked_seconds("rounds: first_s", first_s),
        )
        self.needs_estimates = self._policy.needs_estimates
        self.preemptive = self._policy.preemptive
        self.one_node = getattr(self._policy, "one_node", False)

    def plan(self, view: ClusterView) -> Plan:
        """The policy's plan when a round begins; otherwise what that plan still has to start."""
        memory: _Memory = view.state or _Memory()
        changes = memory.changes | view.changes
        if view.round is None:
            raise PolicyError("rounds needs rounds: a policy that calls it needs its attribute `rounds`, too")
        if view.round.number > memory.number or (view.round.number >= 0 and "node" in view.triggers):
            plan = self._policy.plan(replace(view, changes=changes, changed_nodes=None, state=memory.inner, round=None))
            return replace(plan, wake_at_s=None, state=_Memory(view.round.number, plan.allocations, plan.state))
        held = view.plan.allocations
        start = {
            job_id: allocation
            for job_id, allocation in memory.target.items()
            if view.news_of(job_id, allocation)
            and job_id not in held
            and job_id in view.jobs
            and view.jobs[job_id].queued
        }
        reasons = dict.fromkeys(start, f"round {memory.number}: its devices are free now")
        return view.plan.evolve(start=start, state=replace(memory, changes=changes), reasons=reasons)
