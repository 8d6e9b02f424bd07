"""The interface of a scheduling policy: a snapshot in, a plan out."""

from __future__ import annotations

from typing import Protocol

from scheduler_sims.interface.plan import Plan
from scheduler_sims.interface.view import ClusterView


class Policy(Protocol):
    """A pure object: the same view gives the same plan, whichever cluster the policy drives.

    A policy is a class; its options are keyword arguments of `__init__` with defaults (`--policy las:threshold_s=300`).
    Optional: with the attribute `one_node = True` it gets no jobs that span nodes from `emugpu scheduler`. With the attribute
    `rounds` (of the type Rounds) it is also called at the beginning of each round, which it sees as `view.round`.
    """

    @property
    def needs_estimates(self) -> bool:
        """Whether the policy uses estimates; such a policy is refused under `--estimates none`."""
        ...

    @property
    def preemptive(self) -> bool:
        """Whether the policy ever stops running jobs. `emugpu policies` shows it; a policy of your own doesn't need it."""
        ...

    def plan(self, view: ClusterView) -> Plan:
        """Which jobs run where from now on. Raises PolicyError for a job that the policy can't handle."""
        ...
