"""Decides which entries of a full outbox may be merged: entry by entry, without a database.

Consecutive progress ranges of a job are merged into one; nothing else is removed. So the ranges of a job still begin where
the previous one ended. Example: progress [0, 10) and progress [10, 25) become progress [0, 25).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sharing_manager.store.entries import Entry

PROGRESS_KIND = "progress"


@dataclass(frozen=True, slots=True)
class Absorb:
    """Entry `gone` is removed, and the later entry `into` is rewritten to cover both."""

    gone: Entry
    into: Entry


class Compactor:
    """Takes entries in order, oldest first, and returns which earlier entry each of them absorbs."""

    def __init__(self) -> None:
        self._progress: dict[str, Entry] = {}

    def feed(self, entry: Entry) -> Absorb | None:
        """The merge that `entry` makes possible, None if there is none."""
        before, merge = self._progress.pop(entry.job_id, None), None
        if before is not None and _follows(before, entry):
            absorbed = before.absorbed + 1 + entry.absorbed
            merge = Absorb(before, replace(entry, from_step=before.from_step, absorbed=absorbed))
        if entry.kind == PROGRESS_KIND:
            self._progress[entry.job_id] = merge.into if merge else entry
        return merge


def _follows(before: Entry, entry: Entry) -> bool:
    """Two ranges can be merged if both go forward, are adjacent, and belong to the same run of the same job."""
    same = (before.job_key, before.namespace, before.pod, before.detail) == (
        entry.job_key,
        entry.namespace,
        entry.pod,
        entry.detail,
    )
    forward = before.from_step <= before.steps_done == entry.from_step <= entry.steps_done
    return same and forward and entry.kind == PROGRESS_KIND
