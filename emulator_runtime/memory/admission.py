"""Whether jobs fit on a device. Only one holder computes at a time, so a shared device needs the persistent memory of all
holders plus the largest transient part (peak - persistent) of any one (GPEmu, PVLDB 18(6) 2025, section 2.4).

Example: holders with (persistent, peak) of (2, 5) and (3, 4) GiB need 2 + 3 + max(3, 1) = 8 GiB.
"""

from __future__ import annotations

from emulator_runtime.domain.errors import OutOfMemoryError
from emulator_runtime.domain.units import gib
from emulator_runtime.memory.rules import Reservation, one_peak_at_a_time


class MemoryBook:
    """The memory of one device: how much each holder has reserved, and whether another reservation fits."""

    def __init__(self, device: str, usable_bytes: int) -> None:
        self._device = device
        self._usable_bytes = usable_bytes
        self.held: dict[str, Reservation] = {}

    @property
    def used_bytes(self) -> int:
        """The persistent memory of all holders plus the largest transient part."""
        return one_peak_at_a_time(self.held.values())

    def reserve(self, holder: str, wanted: Reservation) -> None:
        """Set the reservation of `holder`. Raises OutOfMemoryError if it doesn't fit; nothing changes then."""
        others = {name: held for name, held in self.held.items() if name != holder}
        if one_peak_at_a_time([*others.values(), wanted]) > self._usable_bytes:
            raise OutOfMemoryError(self._refusal(holder, wanted, others))
        self.held[holder] = wanted

    def resize(self, usable_bytes: int) -> None:
        """Change the usable memory of the device. Existing reservations stay, even if they don't fit any more."""
        self._usable_bytes = usable_bytes

    def release(self, holder: str) -> None:
        self.held.pop(holder, None)

    def _refusal(self, holder: str, wanted: Reservation, others: dict[str, Reservation]) -> str:
        free = max(0, self._usable_bytes - one_peak_at_a_time(others.values()))
        rest = ", ".join(f"{name} {gib(held.persistent_bytes)}" for name, held in others.items()) or "nobody"
        return (
            f"out of memory on {self._device}: {holder} asks for {gib(wanted.peak_bytes)} "
            f"({gib(wanted.persistent_bytes)} of it persistent), {gib(free)} of {gib(self._usable_bytes)} usable are free, "
            f"the rest is held by {rest}"
        )
