"""Who gets device time next: pure code, one file per sharing mode; this file is the table of the modes."""

from collections.abc import Callable, Mapping

from sharing_manager.arbitration.base import Arbiter, Booking
from sharing_manager.arbitration.exclusive import Exclusive
from sharing_manager.arbitration.fifo import Fifo

MODES: Mapping[str, Callable[[Booking | None], Arbiter]] = {"exclusive": Exclusive, "fifo": Fifo}


def mode_of(replicas: int) -> Callable[[Booking | None], Arbiter]:
    """The mode of a device of which an inventory offers so many replicas."""
    return MODES["fifo" if replicas > 1 else "exclusive"]
