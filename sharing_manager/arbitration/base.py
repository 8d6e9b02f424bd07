"""The interface of a sharing mode: who may hold a device, and which interval of device time a request gets."""

from __future__ import annotations

from typing import Protocol


class Arbiter(Protocol):
    """Device time of one device, in emulated nanoseconds. Pure: time comes in as arguments."""

    def admit(self, holder: str) -> None:
        """`holder` may ask for time from now on. Raises RefusedError where the mode allows no more holders."""
        ...

    def free_at_ns(self) -> int:
        """When the device has done all that it was given."""
        ...

    def occupy(self, holder: str, start_ns: int, end_ns: int) -> None:
        """The device works for `holder` in [start_ns, end_ns), where start_ns is not before `free_at_ns()`."""
        ...

    def leave(self, holder: str, now_ns: int) -> None:
        """`holder` is gone; work of it that hasn't run yet at `now_ns` is dropped where nobody queues behind it."""
        ...
