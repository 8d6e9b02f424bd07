"""Rounds: times at which the loop calls a policy whatever happens, the same for all policies that have them."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

_SLACK = 1e-9
"""Fraction of a round: clocks count integer nanoseconds, so a boundary may come a rounding error early."""


@dataclass(frozen=True, slots=True)
class Round:
    """One round, in emulated seconds. The first has the number 0; -1 is the time before it."""

    number: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Rounds:
    """Rounds of `length_s`, the first of which begins at `first_s`."""

    length_s: float
    first_s: float = 0.0

    def at(self, now_s: float) -> Round:
        """The round at this time. Example: with rounds of 300 s from 30 s on, the one at 400 s is number 1, from 330 to 630 s."""
        number = max(-1, floor((now_s - self.first_s) / self.length_s + _SLACK))
        start_s, end_s = (self.first_s + each * self.length_s for each in (number, number + 1))
        return Round(number, start_s if number >= 0 else 0.0, end_s)
