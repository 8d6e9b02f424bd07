"""What policies that divide the cluster anew each round have in common: when they choose, and the plan between two choices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from emulator_runtime.domain.errors import PolicyError
from scheduler_sims.interface.plan import Allocation, Plan
from scheduler_sims.interface.rounds import Rounds
from scheduler_sims.interface.view import ClusterView
from scheduler_sims.policies.goodput.shapes import answer
from scheduler_sims.policies.option_values import checked_seconds

LEAST_ROUND_S = 0.1


@dataclass(frozen=True, slots=True)
class RoundMemory:
    """The state: the number of the round, and its allocations."""

    round: int = -1
    targets: Mapping[str, Allocation] = field(default_factory=dict)


M = TypeVar("M", bound=RoundMemory)


class ElasticRounds(ABC, Generic[M]):
    """A policy that chooses for all jobs every `round_s`, and when nodes change. `name` begins its messages."""

    name: ClassVar[str]
    needs_estimates: ClassVar[bool] = True
    preemptive: ClassVar[bool] = True

    def __init__(self, round_s: float) -> None:
        """Raises InputError for a round that is too short."""
        self.round_s = checked_seconds(f"{self.name}: round_s", round_s, least=LEAST_ROUND_S)
        self.rounds = Rounds(self.round_s)

    def plan(self, view: ClusterView) -> Plan:
        """A new choice when a round begins or nodes change; otherwise the same plan for the remaining jobs."""
        memory: M = view.state if view.state is not None else self._first()
        if view.round is None:
            raise PolicyError(f"{self.name} needs rounds: a policy that calls it needs its attribute `rounds`, too")
        reasons: dict[str, str] = {}
        if view.jobs and (view.round.number > memory.round or "node" in view.triggers):
            memory = self._begin(view, memory, view.round.number)
            reasons = {
                job_id: f"round {memory.round}: {self._described(view, job_id, allocation)}"
                for job_id, allocation in memory.targets.items()
            }
        return answer(view, memory.targets, memory, reasons, f"round {memory.round}: its GPUs bring more elsewhere")

    @abstractmethod
    def _first(self) -> M:
        """The state before the first round."""

    @abstractmethod
    def _begin(self, view: ClusterView, last: M, number: int) -> M:
        """The state of round `number`, with what each job gets in it."""

    @abstractmethod
    def _described(self, view: ClusterView, job_id: str, allocation: Allocation) -> str:
        """What a job gets in the round, for its reason."""
