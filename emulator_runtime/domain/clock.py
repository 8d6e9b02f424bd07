"""A clock is an argument: emulated time is never read from the host by itself (host time, for time-outs, is timing/host.py's)."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Emulated time in integer nanoseconds since the experiment's start."""

    def now_ns(self) -> int:
        """The emulated time now."""
        ...

    def wait_until_ns(self, deadline_ns: int) -> int:
        """Return at `deadline_ns` or later; the answer is the lag in emulated nanoseconds (>= 0).

        Raises LateError where the clock is strict and the lag is above its limit.
        """
        ...
