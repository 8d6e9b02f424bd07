"""Arbitration of device time: one file for each sharing mode, and the table of modes."""

from collections.abc import Callable, Mapping

from sharing_manager.arbitration.base import Arbiter, Booking
from sharing_manager.arbitration.exclusive import Exclusive
from sharing_manager.arbitration.fifo import Fifo

MODES: Mapping[str, Callable[[Booking | None], Arbiter]] = {"exclusive": Exclusive, "fifo": Fifo}


def mode_of(replicas: int) -> Callable[[Booking | None], Arbiter]:
    """The mode of a device with this number of replicas in the inventory."""
    return MODES["fifo" if replicas > 1 else "exclusive"]
