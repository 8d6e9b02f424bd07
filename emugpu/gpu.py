"""Emulated GPUs for your own program, with the standard library only: `from emugpu import gpu`."""

from emulator_runtime.domain.errors import DeviceLostError, EmuGpuError, OutOfMemoryError
from emulator_runtime.domain.units import GIB
from emulator_runtime.program.device import Device, Event, Memory, Stream
from emulator_runtime.program.session import Session

__all__ = [
    "GIB",
    "Device",
    "DeviceLostError",
    "EmuGpuError",
    "Event",
    "Memory",
    "OutOfMemoryError",
    "Session",
    "Stream",
]
