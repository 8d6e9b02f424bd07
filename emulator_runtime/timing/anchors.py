"""The three numbers that define emulated time: a wall time, the emulated time at that wall time, and the rate.

Example: with wall_ns=100, emulated_ns=50 and rate=2, wall time 110 is emulated time 70.
"""

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
    """Emulated time as a linear function of CLOCK_MONOTONIC. Rate 1 is wall time, n is n times as fast, 0 is paused."""

    wall_ns: int
    emulated_ns: int
    rate: float

    def emulated_at(self, wall_ns: int) -> int:
        """The emulated time at the wall time `wall_ns`, rounded down. It never decreases for a later wall time."""
        return self.emulated_ns + math.floor((wall_ns - self.wall_ns) * self.rate)

    def wall_at(self, emulated_ns: int) -> int | None:
        """The first wall time at which `emulated_ns` is reached; None if the clock is paused before it."""
        if self.rate == 0:
            return self.wall_ns if emulated_ns <= self.emulated_ns else None
        wall = self.wall_ns + math.ceil((emulated_ns - self.emulated_ns) / self.rate)
        while self.emulated_at(wall) < emulated_ns:  # the float division is exact to 53 bits only
            wall += 1
        return wall

    def with_rate(self, rate: float, wall_ns: int) -> Anchors:
        """The anchors that continue from `wall_ns` at another rate; emulated time doesn't jump."""
        return Anchors(wall_ns, self.emulated_at(wall_ns), rate)

    def jumped_to(self, emulated_ns: int, wall_ns: int) -> Anchors:
        """The anchors with the emulated time `emulated_ns` at `wall_ns`; if it is already later, it isn't set back."""
        return Anchors(wall_ns, max(emulated_ns, self.emulated_at(wall_ns)), self.rate)


def checked_rate(rate: float) -> float:
    """`rate` as a float. Raises InputError unless it is 0 or from 1e-6 to 1e6 (the range of 64-bit nanoseconds)."""
    if rate != 0 and not MIN_RATE <= rate <= MAX_RATE:
        raise InputError("rate", f"must be 0 (paused) or from {MIN_RATE:g} to {MAX_RATE:g} times wall time, got {rate}")
    return float(rate)


class TimeSource(Protocol):
    """The source of a clock's anchors; they may change between two calls."""

    def sample(self) -> tuple[Anchors, int]:
        """The anchors, and a wall time at which they were valid."""
        ...


class FixedAnchors:
    """Anchors of one process that never change."""

    def __init__(self, anchors: Anchors, now: Callable[[], int]) -> None:
        self._anchors = anchors
        self._now = now

    def sample(self) -> tuple[Anchors, int]:
        return self._anchors, self._now()
