"""The tracked jobs of a scheduler by uid, by name and by job id, and which EmuJobs belong to the scheduler at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count

from operators.objects.emujob import EmuJob
from operators.objects.names import ENDED, SCHEDULER_ACTUATORS
from operators.scheduling.see.job_objects import submitted_at
from operators.scheduling.track.job_reading import job_id_of
from operators.scheduling.track.tracked_job import TrackedJob

FIRST_FREE_ROW = 1_000_000_000
"""Rows of jobs without the annotation ROW are counted from here."""


class TrackedJobs:
    """`submitted` returns a job's submission time (RFC 3339), which orders the jobs that are reported together."""

    def __init__(self, scope: Scope, submitted: Callable[[TrackedJob], str]) -> None:
        self._scope, self._submitted = scope, submitted
        self._rows = count(FIRST_FREE_ROW)
        self._used_rows: set[int] = set()
        self._ids: set[str] = set()
        self._by_key: dict[str, list[TrackedJob]] = {}
        self.by_uid: dict[str, TrackedJob] = {}
        self.in_loop: dict[str, TrackedJob] = {}
        """By job id: the jobs that the loop has."""

    def add(self, emujobs: Iterable[EmuJob]) -> bool:
        """Tracks those of the scope that are not tracked yet; returns whether there were any."""
        new = [emujob for emujob in emujobs if emujob.key.uid not in self.by_uid and self._scope.includes(emujob)]
        for emujob in sorted(new, key=lambda emujob: (submitted_at(emujob), emujob.created, str(emujob.key))):
            tracked = TrackedJob(emujob.key.uid, str(emujob.key), self._id_of(emujob), self._row_of(emujob))
            self.by_uid[tracked.uid] = tracked
            self._by_key.setdefault(tracked.key, []).append(tracked)
        return bool(new)

    def named(self, keys: Iterable[str]) -> list[TrackedJob]:
        """The jobs with these names in order of submission; two if an EmuJob was deleted and another one has its name."""
        jobs = [tracked for key in keys for tracked in self._by_key.get(key, ())]
        return sorted(jobs, key=lambda tracked: (self._submitted(tracked), tracked.row, tracked.key))

    def keys(self) -> set[str]:
        return set(self._by_key)

    def remove(self, tracked: TrackedJob) -> None:
        """For an EmuJob that was deleted and of which no pod is left."""
        del self.by_uid[tracked.uid]
        self._by_key[tracked.key].remove(tracked)
        if not self._by_key[tracked.key]:
            del self._by_key[tracked.key]
        self._used_rows.discard(tracked.row)
        self._ids.discard(tracked.job_id)

    def _id_of(self, emujob: EmuJob) -> str:
        job_id = job_id_of(emujob, one_namespace=bool(self._scope.namespace))
        if job_id in self._ids:
            job_id = f"{emujob.key}/{emujob.key.uid}"
        self._ids.add(job_id)
        return job_id

    def _row_of(self, emujob: EmuJob) -> int:
        row = emujob.row
        if row is None or row in self._used_rows:
            row = next(number for number in self._rows if number not in self._used_rows)
        self._used_rows.add(row)
        return row


@dataclass(frozen=True, slots=True)
class Until:
    """Stop condition: `jobs` EmuJobs with this label have ended or were rejected."""

    label: str
    value: str
    jobs: int

    def counts(self, emujob: EmuJob) -> bool:
        return emujob.labels.get(self.label) == self.value and emujob.phase in ENDED


@dataclass(frozen=True, slots=True)
class Scope:
    """The EmuJobs of the scheduler `name`, in one namespace (empty: all), with these labels and actuators (empty: any).

    `gangs`: whether the policy can place jobs of several pods; if not, such jobs are not scheduled.
    """

    name: str
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    actuators: tuple[str, ...] = ()
    until: Until | None = None
    gangs: bool = True

    def includes(self, emujob: EmuJob) -> bool:
        return (
            emujob.scheduler == self.name
            and emujob.actuator in (self.actuators or SCHEDULER_ACTUATORS)
            and all(emujob.labels.get(name) == value for name, value in self.labels.items())
        )
