"""How far a job has come, wherever in the cluster it ran before: the interface of the place where that is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from emulator_runtime.domain.errors import EmuGpuError

OnProgress = Callable[[int | EmuGpuError | None], None]
"""Gets the steps done, None for a job that never ran, or why it can't be told."""


class ProgressStore(Protocol):
    """Progress of jobs by `PodIdentity.job_key`; what this node knows itself (SQLite) needs no store."""

    def lookup(self, job_key: str, done: OnProgress) -> None:
        """Call `done` once, in the poller's thread (`Poller.call_soon`), now or later. Doesn't block."""
        ...
