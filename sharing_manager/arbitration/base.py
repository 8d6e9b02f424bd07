"""The interface of a sharing mode: which holders a device may have, and which interval of device time a request gets."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(slots=True)
class Booking:
    """The current bookings of a device, independent of the mode. `tail` has the holder and start of the last interval."""

    holders: set[str] = field(default_factory=set)
    free_at_ns: int = 0
    tail: tuple[str, int] | None = None


class Arbiter(Protocol):
    """Device time of one device, in emulated nanoseconds. Pure: time is an argument."""

    booking: Booking
    """The bookings, with which an arbiter of another mode can continue."""

    @property
    def holders(self) -> set[str]: ...

    def check(self, holder: str, leaving: Collection[str] = ()) -> None:
        """Raises RefusedError if `admit` would, after the holders in `leaving` have left."""
        ...

    def admit(self, holder: str) -> None:
        """Register `holder`, which may then ask for time. Raises RefusedError if the mode allows no more holders."""
        ...

    def free_at_ns(self) -> int:
        """When the last booked interval ends."""
        ...

    def occupy(self, holder: str, start_ns: int, end_ns: int) -> None:
        """Book [start_ns, end_ns) for `holder`; start_ns must not be before `free_at_ns()`."""
        ...

    def cut(self, holder: str, now_ns: int) -> None:
        """Cancel the bookings of `holder` after `now_ns`, unless another holder has booked behind them."""
        ...

    def leave(self, holder: str, now_ns: int) -> None:
        """Remove `holder`, and cancel its bookings as `cut` does."""
        ...
