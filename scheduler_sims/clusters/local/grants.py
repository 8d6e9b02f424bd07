"""Which managers a job has a grant of, and what they have said of it: of a gang, news is what all of its nodes have told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from scheduler_sims.clusters.base import Event, Happening


@dataclass(slots=True)
class _Grants:
    """`open`: nodes whose manager has not told the end yet."""

    open: list[str]
    waited_for: set[str]
    told: list[Event] = field(default_factory=list)


class Grants:
    """By job. What a manager says of a grant that isn't open any more is of a former run."""

    def __init__(self) -> None:
        self._jobs: dict[str, _Grants] = {}

    def begin(self, job_id: str, nodes: Sequence[str]) -> None:
        """The job has got a grant of each of these nodes."""
        self._jobs[job_id] = _Grants(list(nodes), set(nodes))

    def nodes(self, job_id: str) -> tuple[str, ...]:
        """Where its grants are open, the first node first; none where it has none."""
        return tuple(self._jobs[job_id].open) if job_id in self._jobs else ()

    def told(self, node: str, event: Event) -> Event | None:
        """What the job as a whole has come to by this; None: nothing yet."""
        if node not in self.nodes(event.job_id):
            return None
        grants = self._jobs[event.job_id]
        if event.what is Happening.STARTED:
            if node not in grants.waited_for:
                return None
            grants.waited_for.discard(node)
            return None if grants.waited_for else event
        grants.open.remove(node)
        grants.told.append(event)
        if grants.open:
            return None
        del self._jobs[event.job_id]
        return _whole(grants.told)


def _whole(told: Sequence[Event]) -> Event:
    """The end of a job by those of its tasks: the worst of them, when the last came; with the steps that all have done."""
    worst = next((event for event in told if event.what is Happening.FAILED), told[0])
    return replace(worst, at_ns=max(event.at_ns for event in told), steps_done=min(event.steps_done for event in told))
