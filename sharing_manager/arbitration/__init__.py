"""Who may hold a device, and the device time that is booked: for one holder, and for several."""

from emulator_runtime.sharing.modes import Mode
from sharing_manager.arbitration.base import Arbiter, Booking
from sharing_manager.arbitration.exclusive import Exclusive
from sharing_manager.arbitration.fifo import Fifo


def arbiter_of(mode: Mode, booking: Booking | None = None) -> Arbiter:
    """The arbiter of a device that is shared by this mode; it continues with these bookings."""
    return Fifo(booking) if mode.shared else Exclusive(booking)
