"""The device time that is booked: one interval after the other, first in, first out (GPEmu section 2.4)."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Bookings:
    """Of one device, in emulated nanoseconds. `until_ns`: by holder, when its last interval ends. `over_ns`: when those that were
    cut ended."""

    until_ns: dict[str, int] = field(default_factory=dict)
    over_ns: int = 0

    @property
    def free_at_ns(self) -> int:
        """When the last interval ends."""
        return max([self.over_ns, *self.until_ns.values()])

    def add(self, holder: str, end_ns: int) -> None:
        """Book an interval for `holder`; it must not begin before `free_at_ns`, where others wait for it."""
        self.until_ns[holder] = max(self.until_ns.get(holder, 0), end_ns)

    def cut(self, holder: str, now_ns: int, *, alone: bool = False) -> None:
        """Cancel the time of `holder` after `now_ns`; `alone`: that of all, since nobody else has the device."""
        for each in list(self.until_ns) if alone else [holder]:
            self.over_ns = max(self.over_ns, min(self.until_ns.pop(each, 0), now_ns))
