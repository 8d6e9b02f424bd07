"""NVIDIA's time slicing: processes take turns for a quantum that is far shorter than a step, and a switch takes time.

As a fluid: n processes get 1 / n each of what the switches leave. tests/emulator_runtime/sharing holds it to explicit turns.
"""

from __future__ import annotations

from emulator_runtime.memory.rules import sum_of_peaks
from emulator_runtime.sharing.modes.mode import Mode
from emulator_runtime.sharing.processor_sharing import ProcessorSharing

QUANTUM_NS = 2_000_000
"""The default time slice of NVIDIA's drivers (nvidia-smi compute-policy --help: default, about 2 ms)."""
SWITCH_NS = 0
"""What a switch costs beyond the quantum; the caches' and the pipeline's cost depends on the programs."""


def time_slicing(quantum_ns: int = QUANTUM_NS, switch_ns: int = SWITCH_NS) -> ProcessorSharing:
    """A single process has no switches."""
    speed = quantum_ns / (quantum_ns + switch_ns)
    return ProcessorSharing(lambda number: speed if number > 1 else 1.0)


TIME_SLICING = Mode("time-slicing", "all take turns of a short quantum", time_slicing, sum_of_peaks)
