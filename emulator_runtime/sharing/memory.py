"""How much memory of a device its sessions need together: one rule for each way to share it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory of one session: held always, and at most (within a step)."""

    persistent_bytes: int
    peak_bytes: int


MemoryRule = Callable[[Iterable[Footprint]], int]


def sum_of_peaks(footprints: Iterable[Footprint]) -> int:
    """For sessions whose steps overlap or are interrupted: each may be at its peak (MPS, time slicing)."""
    return sum(footprint.peak_bytes for footprint in footprints)


def one_peak_at_a_time(footprints: Iterable[Footprint]) -> int:
    """For sessions that take turns by whole iterations: what all hold, and the largest excess (Salus, MLSys 2020, section 3.3).

    Example: sessions of 2 GB held and 6 GB at most, and of 3 GB held and 5 GB at most, need 2 + 3 + 4 = 9 GB.
    """
    held = excess = 0
    for footprint in footprints:
        held += footprint.persistent_bytes
        excess = max(excess, footprint.peak_bytes - footprint.persistent_bytes)
    return held + excess
