"""A lease: an interval of device time granted to one request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lease:
    """The interval [start_ns, end_ns) of emulated time on the devices of one grant.

    `stop` tells the holder to end its run after this step: checkpoint, then give the devices back.
    """

    start_ns: int
    end_ns: int
    stop: bool = False
