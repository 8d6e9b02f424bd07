"""NVIDIA's Multi-Process Service: kernels of several processes run at the same time, each within its active-thread percentage."""

from __future__ import annotations

from emulator_runtime.memory.rules import sum_of_peaks
from emulator_runtime.sharing.modes.mode import Mode
from emulator_runtime.sharing.processor_sharing import ProcessorSharing


def mps(interference: float = 0.0) -> ProcessorSharing:
    """`interference`: by how much each further process slows all down. Example: 0.1 makes three run at 1 / 1.2 of the speed."""
    return ProcessorSharing(lambda number: 1 / (1 + interference * (number - 1)))


MPS = Mode("mps", "all at once, each at most its active-thread percentage", mps, sum_of_peaks, share="cap")
