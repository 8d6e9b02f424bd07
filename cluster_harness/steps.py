"""Displays what `emugpu cluster` does: steps with a title, their progress, and their duration."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from emulator_runtime.domain.units import NS_PER_S

HEARTBEAT_S = 20.0
"""Time between two lines of a running step if the output is a file or a pipe: CI systems end silent jobs."""


@dataclass(frozen=True)
class Progress:
    """How far a step is: `done` of `total` things called `unit`; `total` is None while unknown. `detail`: the current one."""

    done: int
    total: int | None
    unit: str
    detail: str = ""

    def __str__(self) -> str:
        """For example `120 of 3793 packages (k8s.io/api/core/v1)`."""
        of_total = "" if self.total is None else f" of {self.total}"
        return f"{self.done}{of_total} {self.unit}" + (f" ({self.detail})" if self.detail else "")


Report = Callable[[Progress], None]
"""Receives the progress of a running step; displays show the latest only."""


class Steps(Protocol):
    """Shows steps. `taken` lists the completed ones in order, with their wall time in seconds."""

    taken: list[tuple[str, float]]

    def step(self, title: str) -> AbstractContextManager[Report]: ...

    def say(self, text: str) -> None: ...


class PlainSteps:
    """For logs and pipes: a line when a step begins, one every `heartbeat_s` while it runs, one when it is complete."""

    def __init__(
        self, write: Callable[[str], None], now_ns: Callable[[], int], heartbeat_s: float = HEARTBEAT_S
    ) -> None:
        self.taken: list[tuple[str, float]] = []
        self._write = write
        self._now_ns = now_ns
        self._heartbeat_s = heartbeat_s

    @contextmanager
    def step(self, title: str) -> Iterator[Report]:
        """A step that fails has no last line: its error says what happened."""
        self._write(title)
        started_ns, latest, ended = self._now_ns(), _Latest(), threading.Event()

        def seconds() -> float:
            return (self._now_ns() - started_ns) / NS_PER_S

        def beat() -> None:
            while not ended.wait(self._heartbeat_s):
                progress = f"{latest.progress}, " if latest.progress else ""
                self._write(f"{title}: {progress}{seconds():.0f} s so far")

        thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield latest.set
        finally:
            ended.set()
            thread.join()
        self.taken.append((title, seconds()))
        self._write(f"{title}: done in {self.taken[-1][1]:.1f} s")

    def say(self, text: str) -> None:
        self._write(text)


class _Latest:
    """The newest progress, written by the step and read by the heartbeat's thread."""

    progress: Progress | None = None

    def set(self, progress: Progress) -> None:
        self.progress = progress
