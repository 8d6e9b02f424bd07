"""How much memory of a device its holders need together: one rule for each way to share it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reservation:
    """The memory that one holder reserves on a device, in bytes; `peak_bytes` includes `persistent_bytes`.

    `measured`: all that the process has of the device. Otherwise it is what a profile or a program states, without the CUDA
    context and fragmentation.
    """

    persistent_bytes: int
    peak_bytes: int
    measured: bool = False


MemoryRule = Callable[[Iterable[Reservation]], int]


def sum_of_peaks(reservations: Iterable[Reservation]) -> int:
    """For holders whose steps overlap or are interrupted: each may be at its peak (MPS, time slicing)."""
    return sum(reservation.peak_bytes for reservation in reservations)


def one_peak_at_a_time(reservations: Iterable[Reservation]) -> int:
    """For holders that take turns by whole iterations: what all hold, and the largest transient part (Salus, MLSys 2020, section
    3.3; GPEmu, PVLDB 18(6) 2025, section 2.4).

    Example: holders of 2 GB held and 6 GB at most, and of 3 GB held and 5 GB at most, need 2 + 3 + 4 = 9 GB.
    """
    held = excess = 0
    for reservation in reservations:
        held += reservation.persistent_bytes
        excess = max(excess, reservation.peak_bytes - reservation.persistent_bytes)
    return held + excess
