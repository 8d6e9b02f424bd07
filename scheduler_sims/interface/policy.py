"""The interface of a scheduling policy: a snapshot in, a plan out."""

from __future__ import annotations

from typing import Protocol

from scheduler_sims.interface.plan import Plan
from scheduler_sims.interface.view import ClusterView


class Policy(Protocol):
    """A pure object: the same view gives the same plan, and it can't tell which cluster it drives.

    A policy is a class; its options are keyword arguments of `__init__` with defaults (`--policy las:threshold_s=300`).
    """

    @property
    def needs_estimates(self) -> bool:
        """Whether it asks for durations; such a policy is refused under `--estimates none`."""
        ...

    @property
    def preemptive(self) -> bool:
        """Whether it ever stops running jobs; for `emugpu policies` only."""
        ...

    def plan(self, view: ClusterView) -> Plan:
        """Which jobs run where from now on. Raises PolicyError for a job it can't handle."""
        ...
