"""Writes the runner's part of its SchedulingExperiment's status, in a thread of its own: a run must not wait for the API server.

Server-side apply keeps the part separate from the controller's. Several changes within two seconds are one write; a failed write
is repeated with the newest progress. The API server refuses writes until the controller has written the name of the runner's Job
(status.runner), by which an admission policy knows whose status a runner may write.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from emulator_runtime.domain.errors import ClusterError, EmuGpuError
from operators.experiments.runner.inputs import RUNNER_MANAGER, Settings
from operators.experiments.runner.progress import RunnerProgress, status_members
from operators.kube.api import EXPERIMENT, Api, applied
from operators.kube.timestamps import rfc3339

EVERY_S = 2.0
_FLUSH_S = 60.0


class StatusWriter:
    """Use as a context manager; its end waits for the last write. `wall_ns` is the wall clock."""

    def __init__(self, settings: Settings, connect: Callable[[], Api], wall_ns: Callable[[], int]) -> None:
        self._settings, self._connect, self._wall_ns = settings, connect, wall_ns
        self._wanted, self._written = RunnerProgress(), RunnerProgress()
        self._changed = threading.Condition()
        self._ends = self._gives_up = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._work()), name="status-writer", daemon=True)

    def __enter__(self) -> StatusWriter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._ends = True
            self._changed.notify_all()
        self._thread.join(_FLUSH_S)
        self._gives_up = True

    @property
    def progress(self) -> RunnerProgress:
        """The newest."""
        return self._wanted

    def update(self, **changes: Any) -> None:
        """Change members of the progress; doesn't wait for the write."""
        with self._changed:
            self._wanted = replace(self._wanted, **changes)
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until the newest progress is written. Raises ClusterError where that takes too long."""
        with self._changed:
            wanted = self._wanted
            if not self._changed.wait_for(lambda: self._written == wanted, _FLUSH_S):
                raise ClusterError(
                    f"the experiment's progress could not be written for {_FLUSH_S:g} s; see the log above"
                )

    async def _work(self) -> None:
        api = self._connect()
        try:
            while True:
                wanted, ends = await asyncio.to_thread(self._next)
                if self._gives_up:
                    return
                if wanted is not None:
                    await self._write(api, wanted)
                if ends and self._written == self._wanted:
                    return
                if not ends:
                    await asyncio.to_thread(self._pause)
                elif wanted is not None and self._written != wanted:
                    await asyncio.sleep(EVERY_S)  # the write failed: again, until __exit__ gives up
        finally:
            await api.close()

    def _next(self) -> tuple[RunnerProgress | None, bool]:
        """Wait for something to write; and whether this is the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._ends or self._wanted != self._written)
            return (self._wanted if self._wanted != self._written else None), self._ends

    def _pause(self) -> None:
        """At most EVERY_S; a new stage, column or problem is written at once."""
        with self._changed:
            written = self._written
            self._changed.wait_for(lambda: self._ends or _is_urgent(written, self._wanted), EVERY_S)

    async def _write(self, api: Api, progress: RunnerProgress) -> None:
        settings = self._settings
        metadata = {"namespace": settings.namespace}
        status = status_members(progress, rfc3339(self._wall_ns()))
        document = applied(EXPERIMENT, settings.name, settings.uid, metadata=metadata, status=status)
        try:
            await api.apply(EXPERIMENT.status, settings.name, document, RUNNER_MANAGER)
        except EmuGpuError as error:
            print(f"experiment: {error}", file=sys.stderr, flush=True)
            return
        with self._changed:
            self._written = progress
            self._changed.notify_all()


def _is_urgent(written: RunnerProgress, wanted: RunnerProgress) -> bool:
    members = ("stage", "column", "repeat", "done", "problem")
    return any(getattr(written, name) != getattr(wanted, name) for name in members)
