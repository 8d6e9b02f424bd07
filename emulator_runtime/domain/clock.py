"""The interface of a clock. Emulated time always comes from a clock that is passed in.

Timeouts use the host's time, which timing/host.py reads.
"""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Emulated time in integer nanoseconds since the experiment's start."""

    def now_ns(self) -> int:
        """The emulated time now."""
        ...

    def wait_until_ns(self, deadline_ns: int) -> int:
        """Wait until `deadline_ns` and return the lag: how much later the wait ended, in emulated nanoseconds (>= 0).

        Raises LateError if the clock is strict and the lag is above its limit.
        """
        ...
