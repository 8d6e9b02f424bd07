"""Time slicing with one step as the unit: requests are served first in, first out (GPEmu section 2.4)."""

from __future__ import annotations

from collections.abc import Collection

from sharing_manager.arbitration.base import Booking


class Fifo:
    """Any number of holders. A step isn't interrupted; the next one starts when it ends."""

    def __init__(self, booking: Booking | None = None) -> None:
        self.booking = booking or Booking()

    @property
    def holders(self) -> set[str]:
        return self.booking.holders

    def check(self, holder: str, leaving: Collection[str] = ()) -> None:
        """Any number of holders is allowed."""

    def admit(self, holder: str) -> None:
        self.booking.holders.add(holder)

    def free_at_ns(self) -> int:
        return self.booking.free_at_ns

    def occupy(self, holder: str, start_ns: int, end_ns: int) -> None:
        self.booking.free_at_ns = max(self.booking.free_at_ns, end_ns)
        self.booking.tail = (holder, start_ns)

    def cut(self, holder: str, now_ns: int) -> None:
        booking = self.booking
        if booking.tail is not None and booking.tail[0] == holder:
            booking.free_at_ns = min(booking.free_at_ns, max(now_ns, booking.tail[1]))
            booking.tail = None

    def leave(self, holder: str, now_ns: int) -> None:
        self.booking.holders.discard(holder)
        self.cut(holder, now_ns)
