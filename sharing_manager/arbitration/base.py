"""The interface of a sharing mode: who may hold a device, and which interval of device time a request gets."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(slots=True)
class Booking:
    """What a device has been given so far, whichever mode gave it. `tail`: holder and start of the last interval."""

    holders: set[str] = field(default_factory=set)
    free_at_ns: int = 0
    tail: tuple[str, int] | None = None


class Arbiter(Protocol):
    """Device time of one device, in emulated nanoseconds. Pure: time comes in as arguments."""

    booking: Booking
    """Another mode can go on with it."""

    @property
    def holders(self) -> set[str]: ...

    def check(self, holder: str, leaving: Collection[str] = ()) -> None:
        """Raises RefusedError where `admit` would, once those that are `leaving` have left."""
        ...

    def admit(self, holder: str) -> None:
        """`holder` may ask for time from now on. Raises RefusedError where the mode allows no more holders."""
        ...

    def free_at_ns(self) -> int:
        """When the device has done all that it was given."""
        ...

    def occupy(self, holder: str, start_ns: int, end_ns: int) -> None:
        """The device works for `holder` in [start_ns, end_ns), where start_ns is not before `free_at_ns()`."""
        ...

    def cut(self, holder: str, now_ns: int) -> None:
        """Work of `holder` that hasn't run yet at `now_ns` is dropped where nobody queues behind it."""
        ...

    def leave(self, holder: str, now_ns: int) -> None:
        """`holder` is gone, and with it what `cut` drops."""
        ...
