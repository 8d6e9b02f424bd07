"""What a person sees while a cluster comes up: steps with a title, what they are at, and how long they took."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from emulator_runtime.domain.units import NS_PER_S

Note = Callable[[str], None]
"""Tells what a running step is at; a terminal shows the latest only."""


class Steps(Protocol):
    """Shows steps. `taken` lists those that are over, in order, with their wall time in seconds."""

    taken: list[tuple[str, float]]

    def step(self, title: str) -> AbstractContextManager[Note]: ...

    def say(self, text: str) -> None: ...


class PlainSteps:
    """A line when a step begins and one with its seconds when it is over: for logs and pipes."""

    def __init__(self, write: Callable[[str], None], now_ns: Callable[[], int]) -> None:
        self.taken: list[tuple[str, float]] = []
        self._write = write
        self._now_ns = now_ns

    @contextmanager
    def step(self, title: str) -> Iterator[Note]:
        """A step that fails shows no time: its error says what happened."""
        self._write(f"{title} ...")
        started_ns = self._now_ns()
        yield lambda _text: None
        seconds = (self._now_ns() - started_ns) / NS_PER_S
        self.taken.append((title, seconds))
        self._write(f"{title}: {seconds:.1f} s")

    def say(self, text: str) -> None:
        self._write(text)
