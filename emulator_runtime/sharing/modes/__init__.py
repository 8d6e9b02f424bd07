"""The ways to share a device: a file and a line for each."""

from collections.abc import Mapping

from emulator_runtime.sharing.modes.exclusive import EXCLUSIVE
from emulator_runtime.sharing.modes.fair import FAIR
from emulator_runtime.sharing.modes.fifo import FIFO
from emulator_runtime.sharing.modes.mode import Mode
from emulator_runtime.sharing.modes.mps import MPS
from emulator_runtime.sharing.modes.priority import PRIORITY
from emulator_runtime.sharing.modes.shortest import SHORTEST
from emulator_runtime.sharing.modes.time_slicing import TIME_SLICING
from emulator_runtime.sharing.modes.weighted import WEIGHTED

MODES: Mapping[str, Mode] = {
    mode.name: mode for mode in (EXCLUSIVE, FIFO, FAIR, WEIGHTED, PRIORITY, SHORTEST, MPS, TIME_SLICING)
}

__all__ = ["EXCLUSIVE", "FIFO", "MODES", "Mode"]
