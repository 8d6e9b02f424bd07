"""The device time that is booked: one interval after the other, first in, first out (GPEmu section 2.4)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Bookings:
    """Of one device, in emulated nanoseconds. `free_at_ns`: when the last interval ends. `tail`: whose it is, and its start."""

    free_at_ns: int = 0
    tail: tuple[str, int] | None = None

    def add(self, holder: str, start_ns: int, end_ns: int) -> None:
        """Book [start_ns, end_ns) for `holder`; start_ns must not be before `free_at_ns`."""
        self.free_at_ns = max(self.free_at_ns, end_ns)
        self.tail = (holder, start_ns)

    def cut(self, holder: str, now_ns: int, *, alone: bool = False) -> None:
        """Cancel the intervals of `holder` after `now_ns`, unless another holder has booked behind them; `alone`: nobody else
        has the device."""
        if alone:
            self.free_at_ns, self.tail = min(self.free_at_ns, now_ns), None
        elif self.tail is not None and self.tail[0] == holder:
            self.free_at_ns, self.tail = min(self.free_at_ns, max(now_ns, self.tail[1])), None
