"""Which entries of an outbox that is full may go: decided here, entry by entry, without a database.

Only what says nothing about a job's course goes (TELEMETRY); ranges of progress that follow each other become one range.
What remains tells the same story: the ranges of a job still begin where the one before ended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sharing_manager.store.entries import Entry

PROGRESS_KIND = "progress"
TELEMETRY = frozenset({"telemetry"})
"""Kinds of events that are samples of a state: a newer one makes an older one worthless."""


@dataclass(frozen=True, slots=True)
class Absorb:
    """Entry `gone` disappears; `into`, the later one, is written anew."""

    gone: Entry
    into: Entry

    @property
    def dropped(self) -> bool:
        """True: what `gone` said is lost (telemetry); False: `into` says it too."""
        return self.gone.kind in TELEMETRY


class Compactor:
    """Takes entries from the oldest on, answers what each of them absorbs."""

    def __init__(self) -> None:
        self._telemetry: Entry | None = None
        self._progress: dict[str, Entry] = {}

    def feed(self, entry: Entry) -> list[Absorb]:
        """What disappears now that `entry` has come; of several, the last one holds what `entry` became."""
        found = []
        if self._telemetry is not None:
            found.append(_absorb(self._telemetry, entry))
            entry = found[-1].into
        self._telemetry = entry if entry.kind in TELEMETRY else None
        if self._telemetry is None:
            before = self._progress.pop(entry.job_id, None)
            if before is not None and _follows(before, entry):
                found.append(_absorb(before, entry, from_step=before.from_step))
                entry = found[-1].into
            if entry.kind == PROGRESS_KIND:
                self._progress[entry.job_id] = entry
        return found


def _follows(before: Entry, entry: Entry) -> bool:
    """Two ranges make one if both go forward, touch, and belong to the same run of the same job."""
    same = (before.job_key, before.namespace, before.pod, before.detail) == (
        entry.job_key,
        entry.namespace,
        entry.pod,
        entry.detail,
    )
    forward = before.from_step <= before.steps_done == entry.from_step <= entry.steps_done
    return same and forward and entry.kind == PROGRESS_KIND


def _absorb(gone: Entry, entry: Entry, from_step: int | None = None) -> Absorb:
    start = entry.from_step if from_step is None else from_step
    return Absorb(gone, replace(entry, from_step=start, absorbed=entry.absorbed + 1 + gone.absorbed))
