"""A lease: an interval of device time granted to one request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lease:
    """The interval [start_ns, end_ns) of emulated time on the devices of one grant.

    With `stop`, the holder must end its run at `start_ns`, without the step for which it asked: write a checkpoint, then release
    the devices.
    """

    start_ns: int
    end_ns: int
    stop: bool = False
