"""Pauses between attempts: doubled up to a limit, and shortened at random so that nodes don't reconnect at the same
time."""

from __future__ import annotations

from random import Random


class Backoff:
    """Pause number n is between half and all of `first_s` x 2^n, at most `longest_s` (host seconds)."""

    def __init__(self, chance: Random, *, first_s: float = 0.05, longest_s: float = 5.0) -> None:
        self._chance, self._first_s, self._longest_s = chance, first_s, longest_s
        self._pause_s = first_s

    def next_s(self) -> float:
        """The pause before the next attempt."""
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, self._longest_s)
        return pause_s * self._chance.uniform(0.5, 1.0)

    def reset(self) -> None:
        """An attempt succeeded: begin again with the shortest pause."""
        self._pause_s = self._first_s
