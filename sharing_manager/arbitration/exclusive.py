"""One holder per device: the mode of a GPU that isn't shared."""

from __future__ import annotations

from collections.abc import Collection

from emulator_runtime.domain.errors import RefusedError
from sharing_manager.arbitration.fifo import Fifo


class Exclusive(Fifo):
    """First in, first out, limited to one holder."""

    def check(self, holder: str, leaving: Collection[str] = ()) -> None:
        others = self.holders.difference({holder}, leaving)
        if others:
            raise RefusedError(
                f"it is exclusive and {', '.join(sorted(others))} holds it; wait until that ends, or share the device"
            )

    def cut(self, holder: str, now_ns: int) -> None:
        """Cancel all that is booked after `now_ns`: nobody else has the device."""
        self.booking.free_at_ns = min(self.booking.free_at_ns, now_ns)
        self.booking.tail = None

    def admit(self, holder: str) -> None:
        self.check(holder)
        super().admit(holder)
