"""The interface of a source; pages and routes don't know which one they show."""

from __future__ import annotations

from typing import Protocol

from operators.api.model.changes import Changes
from operators.api.model.snapshot import Snapshot, Timeline


class Source(Protocol):
    """`snapshot` is cheap and never blocks; what may take time is awaited."""

    changes: Changes

    def snapshot(self) -> Snapshot:
        """What is known now; the same object until something changes."""
        ...

    def waits_for(self) -> str:
        """What is still missing before requests can be answered; empty: nothing."""
        ...

    async def timeline(self, uid: str) -> Timeline | None:
        """One job's story; None: there is no such job. Where a store can't be read it says so and has less."""
        ...

    async def suspend(self, uid: str, *, suspended: bool) -> None:
        """Set spec.suspend of the job's EmuJob.

        Raises NotThereError for a job that has none, RefusedError where nothing can be written, errors of operators.kube.
        """
        ...

    async def run(self) -> None:
        """Keeps the snapshot fresh; never ends by itself, it is cancelled."""
        ...
