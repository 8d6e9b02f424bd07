"""Who gets device time next: pure code, one file per sharing mode; this file is the table of the modes."""

from collections.abc import Callable, Mapping

from sharing_manager.arbitration.base import Arbiter
from sharing_manager.arbitration.exclusive import Exclusive
from sharing_manager.arbitration.fifo import Fifo

MODES: Mapping[str, Callable[[], Arbiter]] = {"exclusive": Exclusive, "fifo": Fifo}
