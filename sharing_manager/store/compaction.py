"""Which entries of an outbox that is full may go: decided here, entry by entry, without a database.

Ranges of progress that follow each other become one range; nothing else goes. What remains tells the same story: the
ranges of a job still begin where the one before ended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sharing_manager.store.entries import Entry

PROGRESS_KIND = "progress"


@dataclass(frozen=True, slots=True)
class Absorb:
    """Entry `gone` disappears; `into`, the later one, is written anew and says what both said."""

    gone: Entry
    into: Entry


class Compactor:
    """Takes entries from the oldest on, answers what each of them absorbs."""

    def __init__(self) -> None:
        self._progress: dict[str, Entry] = {}

    def feed(self, entry: Entry) -> Absorb | None:
        """What disappears now that `entry` has come."""
        before, found = self._progress.pop(entry.job_id, None), None
        if before is not None and _follows(before, entry):
            absorbed = before.absorbed + 1 + entry.absorbed
            found = Absorb(before, replace(entry, from_step=before.from_step, absorbed=absorbed))
        if entry.kind == PROGRESS_KIND:
            self._progress[entry.job_id] = found.into if found else entry
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
