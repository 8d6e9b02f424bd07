"""Jobs that leave at a stated time (JobSpec.until_s), as replicas of services do."""

from __future__ import annotations

from dataclasses import replace
from heapq import heappop, heappush

from emulator_runtime.domain.job import JobSpec
from emulator_runtime.domain.units import to_ns
from scheduler_sims.clusters.base import Event, Happening


class StatedEnds:
    """When such jobs leave, and which of them are past their time but still hold resources."""

    def __init__(self) -> None:
        self._coming: list[tuple[int, str]] = []
        self._past: set[str] = set()

    def enter(self, job: JobSpec) -> None:
        """A job was submitted."""
        if job.until_s is not None:
            heappush(self._coming, (to_ns(job.until_s), job.job_id))

    @property
    def next_ns(self) -> int | None:
        """When the next one leaves."""
        return self._coming[0][0] if self._coming else None

    def due(self, now_ns: int) -> list[str]:
        """The jobs whose time has come since the last call; some may have left before."""
        ended = []
        while self._coming and self._coming[0][0] <= now_ns:
            ended.append(heappop(self._coming)[1])
        self._past.update(ended)
        return ended

    def settled(self, event: Event) -> Event:
        """The event that ends a run: one that was stopped because its job's time had come doesn't go on."""
        if event.job_id not in self._past:
            return event
        self._past.remove(event.job_id)
        return event if event.what is Happening.FAILED else replace(event, what=Happening.REMOVED)
