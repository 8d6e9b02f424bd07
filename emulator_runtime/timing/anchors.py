"""The three numbers that make emulated time: at this wall time it was that emulated time, and it runs at this rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from emulator_runtime.domain.errors import InputError

MIN_RATE = 1e-6
MAX_RATE = 1e6


@dataclass(frozen=True, slots=True)
class Anchors:
    """Emulated time as a line over the host's CLOCK_MONOTONIC: 1 is wall time, n is n times as fast, 0 is paused."""

    wall_ns: int
    emulated_ns: int
    rate: float

    def emulated_at(self, wall_ns: int) -> int:
        """The emulated time at `wall_ns` of the host's clock, rounded down; never less for a later wall time."""
        return self.emulated_ns + math.floor((wall_ns - self.wall_ns) * self.rate)

    def wall_at(self, emulated_ns: int) -> int | None:
        """A wall time at which `emulated_ns` has just been reached; None where a paused clock won't reach it."""
        if self.rate == 0:
            return self.wall_ns if emulated_ns <= self.emulated_ns else None
        wall = self.wall_ns + math.ceil((emulated_ns - self.emulated_ns) / self.rate)
        while self.emulated_at(wall) < emulated_ns:  # the division rounds to 53 bits
            wall += 1
        return wall

    def with_rate(self, rate: float, wall_ns: int) -> Anchors:
        """The line that goes on from `wall_ns` at another rate, without a jump."""
        return Anchors(wall_ns, self.emulated_at(wall_ns), rate)

    def jumped_to(self, emulated_ns: int, wall_ns: int) -> Anchors:
        """The line that stands at `emulated_ns` at `wall_ns`; where it is already past that, it goes on as it was."""
        return Anchors(wall_ns, max(emulated_ns, self.emulated_at(wall_ns)), self.rate)


def checked_rate(rate: float) -> float:
    """`rate` as a float. Raises InputError unless it is 0 or from 1e-6 to 1e6 (what 64-bit nanoseconds can carry)."""
    if rate != 0 and not MIN_RATE <= rate <= MAX_RATE:
        raise InputError("rate", f"must be 0 (paused) or from {MIN_RATE:g} to {MAX_RATE:g} times wall time, got {rate}")
    return float(rate)


class TimeSource(Protocol):
    """Where a clock finds the anchors; they may change between two calls."""

    def sample(self) -> tuple[Anchors, int]:
        """The anchors, and a wall time at which they held."""
        ...


class FixedAnchors:
    """Anchors that belong to one process and never change."""

    def __init__(self, anchors: Anchors, now: Callable[[], int]) -> None:
        self._anchors = anchors
        self._now = now

    def sample(self) -> tuple[Anchors, int]:
        return self._anchors, self._now()
