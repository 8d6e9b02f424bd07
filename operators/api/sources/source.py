"""The interface of a source of data, which routes use for clusters and for comparisons alike."""

from __future__ import annotations

from typing import Protocol

from operators.api.model.changes import Changes
from operators.api.model.snapshot import Snapshot, Timeline


class Source(Protocol):
    """`snapshot` is cheap and never blocks."""

    changes: Changes

    def snapshot(self) -> Snapshot:
        """The present state; the same object until something changes."""
        ...

    def waits_for(self) -> str:
        """What must still be read before requests can be answered; empty: nothing."""
        ...

    async def timeline(self, uid: str) -> Timeline | None:
        """One job's history; None if there is no such job. `Timeline.missing` says why the results store can't be read."""
        ...

    async def suspend(self, uid: str, *, suspended: bool) -> None:
        """Sets spec.suspend of the job's EmuJob.

        Raises NotThereError for a job without an EmuJob, RefusedError if the source is read-only, errors of operators.kube.
        """
        ...

    async def run(self) -> None:
        """Keeps the snapshot up to date until it is cancelled."""
        ...
