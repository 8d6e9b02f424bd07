"""Whether jobs fit on a device, by the memory rule of the way in which they share it (rules.py)."""

from __future__ import annotations

from emulator_runtime.domain.errors import OutOfMemoryError
from emulator_runtime.domain.units import gib
from emulator_runtime.memory.rules import MemoryRule, Reservation, one_peak_at_a_time


class MemoryBook:
    """The memory of one device: how much each holder has reserved, and whether another reservation fits."""

    def __init__(self, device: str, usable_bytes: int, rule: MemoryRule = one_peak_at_a_time) -> None:
        self._device = device
        self._usable_bytes = usable_bytes
        self.rule = rule
        self.held: dict[str, Reservation] = {}

    @property
    def used_bytes(self) -> int:
        """The memory that all holders need together."""
        return self.rule(self.held.values())

    def reserve(self, holder: str, wanted: Reservation) -> None:
        """Set the reservation of `holder`. Raises OutOfMemoryError if it doesn't fit; nothing changes then."""
        others = {name: held for name, held in self.held.items() if name != holder}
        if self.rule([*others.values(), wanted]) > self._usable_bytes:
            raise OutOfMemoryError(self._refusal(holder, wanted, others))
        self.held[holder] = wanted

    def resize(self, usable_bytes: int) -> None:
        """Change the usable memory of the device. Existing reservations stay, even if they don't fit any more."""
        self._usable_bytes = usable_bytes

    def release(self, holder: str) -> None:
        self.held.pop(holder, None)

    def _refusal(self, holder: str, wanted: Reservation, others: dict[str, Reservation]) -> str:
        free = max(0, self._usable_bytes - self.rule(others.values()))
        rest = ", ".join(f"{name} {gib(held.persistent_bytes)}" for name, held in others.items()) or "nobody"
        return (
            f"out of memory on {self._device}: {holder} asks for {gib(wanted.peak_bytes)} "
            f"({gib(wanted.persistent_bytes)} of it persistent), {gib(free)} of {gib(self._usable_bytes)} usable are free, "
            f"the rest is held by {rest}"
        )
