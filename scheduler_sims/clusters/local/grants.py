"""The grants of running jobs by node, and their events: a gang's events are combined, since each of its nodes reports its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from scheduler_sims.clusters.base import Event, Happening


@dataclass(slots=True)
class _Grants:
    """The grants of one run. `open`: nodes that have not reported the end; `starting`: nodes that have not reported the start."""

    open: list[str]
    starting: set[str]
    ends: list[Event] = field(default_factory=list)


class Grants:
    """Grants by job. Events of a grant that isn't open belong to an earlier run and are ignored."""

    def __init__(self) -> None:
        self._jobs: dict[str, _Grants] = {}

    def begin(self, job_id: str, nodes: Sequence[str]) -> None:
        """The job has a grant from each of these nodes."""
        self._jobs[job_id] = _Grants(list(nodes), set(nodes))

    def nodes(self, job_id: str) -> tuple[str, ...]:
        """The nodes of the job's open grants, the first node first."""
        return tuple(self._jobs[job_id].open) if job_id in self._jobs else ()

    def combine(self, node: str, event: Event) -> Event | None:
        """The event of the whole job that follows from a node's event; None while other nodes are still to report."""
        if node not in self.nodes(event.job_id):
            return None
        grants = self._jobs[event.job_id]
        if event.what is Happening.STARTED:
            if node not in grants.starting:
                return None
            grants.starting.discard(node)
            return None if grants.starting else event
        grants.open.remove(node)
        grants.ends.append(event)
        if grants.open:
            return None
        del self._jobs[event.job_id]
        return _combined_end(grants.ends)


def _combined_end(ends: Sequence[Event]) -> Event:
    """The end of a gang: a failure if any task failed; the time of the last end, and the steps that all tasks have done."""
    worst = next((event for event in ends if event.what is Happening.FAILED), ends[0])
    return replace(worst, at_ns=max(event.at_ns for event in ends), steps_done=min(event.steps_done for event in ends))
