"""Whether jobs fit on a device, by the memory rule of the way in which they share it (rules.py).

Reservations are compared with the usable memory, which is less than the nominal one by what profiles leave out: CUDA contexts
and fragmentation (domain/gpu.py). A measured reservation leaves nothing out and is compared with the nominal memory. Where both
kinds share a device, each uses up its part of what it is compared with. Example: of 40 GB, 37 are usable; a profiled job of
18.5 GB uses up a half, and leaves a half of the nominal memory, 20 GB, for a process that measures.
"""

from __future__ import annotations

from collections.abc import Iterable

from emulator_runtime.domain.errors import OutOfMemoryError
from emulator_runtime.domain.units import gib
from emulator_runtime.memory.rules import MemoryRule, Reservation, one_peak_at_a_time


class MemoryBook:
    """The memory of one device: how much each holder has reserved, and whether another reservation fits.

    `nominal_bytes`: the limit of measured reservations; None: `usable_bytes`.
    """

    def __init__(
        self,
        device: str,
        usable_bytes: int,
        rule: MemoryRule = one_peak_at_a_time,
        *,
        nominal_bytes: int | None = None,
    ) -> None:
        self._device = device
        self.rule = rule
        self.resize(usable_bytes, nominal_bytes)
        self.held: dict[str, Reservation] = {}

    @property
    def used_bytes(self) -> int:
        """The memory that all holders need together."""
        return self.rule(self.held.values())

    def reserve(self, holder: str, wanted: Reservation) -> None:
        """Set the reservation of `holder`. Raises OutOfMemoryError if it doesn't fit; nothing changes then."""
        others = {name: held for name, held in self.held.items() if name != holder}
        if self._weight([*others.values(), wanted]) > self._limit:
            raise OutOfMemoryError(self._refusal(holder, wanted, others))
        self.held[holder] = wanted

    def resize(self, usable_bytes: int, nominal_bytes: int | None = None) -> None:
        """Change the memory of the device. Existing reservations stay, even if they don't fit any more."""
        self._usable_bytes = usable_bytes
        self._nominal_bytes = usable_bytes if nominal_bytes is None else nominal_bytes

    def release(self, holder: str) -> None:
        self.held.pop(holder, None)

    @property
    def _limit(self) -> int:
        return self._usable_bytes * self._nominal_bytes

    def _weight(self, reservations: Iterable[Reservation]) -> int:
        """What they need together of `_limit`; whole numbers, so that a device can be filled to the byte."""
        return self.rule(map(self._weighted, reservations))

    def _weighted(self, reservation: Reservation) -> Reservation:
        factor = self._usable_bytes if reservation.measured else self._nominal_bytes
        return Reservation(reservation.persistent_bytes * factor, reservation.peak_bytes * factor)

    def _refusal(self, holder: str, wanted: Reservation, others: dict[str, Reservation]) -> str:
        limit, kind = (self._nominal_bytes, "nominal") if wanted.measured else (self._usable_bytes, "usable")
        free = max(0, self._limit - self._weight(others.values())) * limit // self._limit
        rest = ", ".join(f"{name} {gib(held.persistent_bytes)}" for name, held in others.items()) or "nobody"
        return (
            f"out of memory on {self._device}: {holder} asks for {gib(wanted.peak_bytes)} "
            f"({gib(wanted.persistent_bytes)} of it persistent), {gib(free)} of {gib(limit)} {kind} are free, "
            f"the rest is held by {rest}"
        )
