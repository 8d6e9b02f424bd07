"""The jobs of a scheduler while they are there: each tracked by uid, and by the name under which the loop knows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count

from operators.objects.emujob import ACTUATORS
from operators.objects.names import ENDED
from operators.scheduling.see.job_objects import ScheduledEmuJob
from operators.scheduling.track.job_reading import job_id_of, row_of
from operators.scheduling.track.tracked_job import TrackedJob

FIRST_FREE_ROW = 1_000_000_000


class Roster:
    """`submitted` says when a job was submitted (RFC 3339), by which jobs are told in order."""

    def __init__(self, scope: Scope, submitted: Callable[[TrackedJob], str]) -> None:
        self._scope, self._submitted = scope, submitted
        self._rows = count(FIRST_FREE_ROW)
        self._taken: set[int] = set()
        self._ids: set[str] = set()
        self._by_key: dict[str, list[TrackedJob]] = {}
        self.by_uid: dict[str, TrackedJob] = {}
        self.in_loop: dict[str, TrackedJob] = {}
        """By job id: those that the loop knows."""

    def enter(self, orders: Iterable[ScheduledEmuJob]) -> bool:
        """Whether any of them is one's own and new."""
        new = [order for order in orders if order.key.uid not in self.by_uid and self._scope.has(order)]
        for order in sorted(new, key=lambda order: (order.time("submittedAt"), order.facts.created, str(order.key))):
            tracked = TrackedJob(order.key.uid, str(order.key), self._id_of(order), self._row_of(order))
            self.by_uid[tracked.uid] = tracked
            self._by_key.setdefault(tracked.key, []).append(tracked)
        return bool(new)

    def called(self, keys: Iterable[str]) -> list[TrackedJob]:
        """The jobs of these EmuJobs' names, in order of submission; a name may have two, one of them about to go."""
        found = [tracked for key in keys for tracked in self._by_key.get(key, ())]
        return sorted(found, key=lambda tracked: (self._submitted(tracked), tracked.row, tracked.key))

    def keys(self) -> set[str]:
        return set(self._by_key)

    def leave(self, tracked: TrackedJob) -> None:
        """Nothing is left of it."""
        del self.by_uid[tracked.uid]
        self._by_key[tracked.key].remove(tracked)
        if not self._by_key[tracked.key]:
            del self._by_key[tracked.key]
        self._taken.discard(tracked.row)
        self._ids.discard(tracked.job_id)

    def _id_of(self, order: ScheduledEmuJob) -> str:
        job_id = job_id_of(order, alone=bool(self._scope.namespace))
        if job_id in self._ids:
            job_id = f"{order.key}/{order.key.uid}"
        self._ids.add(job_id)
        return job_id

    def _row_of(self, order: ScheduledEmuJob) -> int:
        row = row_of(order)
        if row is None or row in self._taken:
            row = next(number for number in self._rows if number not in self._taken)
        self._taken.add(row)
        return row


@dataclass(frozen=True, slots=True)
class Until:
    """So many jobs with this label have ended, or were never accepted, and their status says so."""

    label: str
    value: str
    jobs: int

    def counts(self, order: ScheduledEmuJob) -> bool:
        return order.labels.get(self.label) == self.value and order.phase in ENDED


@dataclass(frozen=True, slots=True)
class Scope:
    """The EmuJobs of the scheduler `name`, in one namespace (empty: all), with these labels and actuators (empty: any).

    `gangs`: whether its policy can place jobs of several pods; if not, these are left alone.
    """

    name: str
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    actuators: tuple[str, ...] = ()
    until: Until | None = None
    gangs: bool = True

    def has(self, order: ScheduledEmuJob) -> bool:
        return (
            order.scheduler == self.name
            and order.actuator in (self.actuators or ACTUATORS)
            and order.actuator != "none"
            and all(order.labels.get(name) == value for name, value in self.labels.items())
        )
