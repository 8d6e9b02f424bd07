"""The interface of the store that knows a job's progress, on whichever node of the cluster it ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from emulator_runtime.domain.errors import EmuGpuError

OnProgress = Callable[[int | EmuGpuError | None], None]
"""Called with the completed steps, with None for a job that never ran, or with the error that prevented the look-up."""


class ProgressStore(Protocol):
    """Progress of jobs by `PodIdentity.job_key`. A node's own records (SQLite) are not part of it."""

    def lookup(self, job_key: str, done: OnProgress) -> None:
        """Call `done` once, in the poller's thread (`Poller.call_soon`), now or later. Doesn't block."""
        ...
