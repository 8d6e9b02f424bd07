"""What fits on a device. On a shared one the sum of everyone's persistent memory plus the largest excess of a peak over
its persistent part must fit, because only one holder computes at a time (GPEmu, PVLDB 18(6) 2025, section 2.4)."""

from __future__ import annotations

from dataclasses import dataclass

from emulator_runtime.domain.errors import OutOfMemoryError
from emulator_runtime.domain.units import gib


@dataclass(frozen=True, slots=True)
class Reservation:
    """What one holder keeps on a device, bytes; `peak` includes `persistent`."""

    persistent_bytes: int
    peak_bytes: int


class MemoryBook:
    """The memory of one device: who holds how much, and whether one more fits."""

    def __init__(self, device: str, usable_bytes: int) -> None:
        self._device = device
        self._usable_bytes = usable_bytes
        self.held: dict[str, Reservation] = {}

    @property
    def used_bytes(self) -> int:
        """Persistent memory of all plus the largest transient part."""
        return _need(list(self.held.values()))

    def reserve(self, holder: str, wanted: Reservation) -> None:
        """Give `holder` this much, instead of what it had. Raises OutOfMemoryError; then nothing changes."""
        others = {name: held for name, held in self.held.items() if name != holder}
        if _need([*others.values(), wanted]) > self._usable_bytes:
            raise OutOfMemoryError(self._refusal(holder, wanted, others))
        self.held[holder] = wanted

    def resize(self, usable_bytes: int) -> None:
        """The device has this much from now on; who holds more than that keeps it."""
        self._usable_bytes = usable_bytes

    def release(self, holder: str) -> None:
        self.held.pop(holder, None)

    def _refusal(self, holder: str, wanted: Reservation, others: dict[str, Reservation]) -> str:
        free = max(0, self._usable_bytes - _need(list(others.values())))
        rest = ", ".join(f"{name} {gib(held.persistent_bytes)}" for name, held in others.items()) or "nobody"
        return (
            f"out of memory on {self._device}: {holder} asks for {gib(wanted.peak_bytes)} "
            f"({gib(wanted.persistent_bytes)} of it persistent), {gib(free)} of {gib(self._usable_bytes)} usable are free, "
            f"the rest is held by {rest}"
        )


def _need(reservations: list[Reservation]) -> int:
    persistent = sum(r.persistent_bytes for r in reservations)
    return persistent + max((r.peak_bytes - r.persistent_bytes for r in reservations), default=0)
