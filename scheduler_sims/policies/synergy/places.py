"""Which jobs of a round an event concerns: a round has hundreds of jobs, an event changes one or two nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from scheduler_sims.interface.plan import Allocation
from scheduler_sims.interface.view import ClusterView


@dataclass(frozen=True, slots=True)
class Places:
    """The jobs of a round: their positions in its allocations, and those of each node."""

    KEPT: ClassVar[bool] = False
    """Not persisted over a restart of the scheduler: it follows from the allocations."""

    positions: Mapping[str, int]
    on_nodes: Mapping[str, list[str]]

    @classmethod
    def of(cls, allocations: Mapping[str, Allocation]) -> Places:
        """The places of these jobs, each on one node."""
        on_nodes: dict[str, list[str]] = {}
        for job_id, allocation in allocations.items():
            on_nodes.setdefault(allocation.tasks[0].node, []).append(job_id)
        return cls({job_id: position for position, job_id in enumerate(allocations)}, on_nodes)

    def news(self, view: ClusterView) -> list[str]:
        """The jobs, in order, that have changed since the last plan, or whose nodes have."""
        jobs = {job_id for job_id in view.changes if job_id in self.positions}
        for node in view.changed_nodes or ():
            jobs.update(self.on_nodes.get(node, ()))
        return sorted(jobs, key=self.positions.__getitem__)
