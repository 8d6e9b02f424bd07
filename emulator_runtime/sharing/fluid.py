"""Weighted max-min fair sharing of a resource as a fluid: who is served at which rate, and when each one's work is done.

Everyone gets a part in proportion to its weight, but at most its cap; what the capped ones leave goes to the others. Example:
with caps of 0.1, 1 and 1 and equal weights, the parts are 0.1, 0.45 and 0.45.

Rates change whenever somebody comes or goes. To recompute nothing for those who stay, work is measured by two clocks: the
capped ones' clock runs at the resource's speed, the others' by the work done per unit of weight. An entry is done when its
clock has reached a fixed value, so a heap by that value says who is next.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable

from emulator_runtime.sharing.demands import WHOLE_MILLI, Place, Session


class Entry:
    """Somebody's work in the fluid. `place`: unique, and orders equal ones. `settled`: it is not announced as done any more."""

    __slots__ = ("cap", "capped", "done_at", "number", "place", "ratio", "settled", "weight")

    def __init__(self, session: Session, place: Place) -> None:
        self.place = place
        self.weight, self.cap = session.weight, session.cap_milli
        self.ratio = self.cap / self.weight
        """It is capped where a weight of 1 gets this or more."""
        self.capped = self.settled = False
        self.done_at = 0.0
        self.number = 0
        """Which of its entries in a heap is valid."""


class _Clock:
    """Reads `reads` now, and runs `rate` for each nanosecond."""

    __slots__ = ("heap", "rate", "reads")

    def __init__(self) -> None:
        self.reads = self.rate = 0.0
        self.heap: list[tuple[float, Place, int, Entry]] = []

    def first(self) -> Entry | None:
        """The unsettled entry that is done first."""
        heap = self.heap
        while heap:
            _, _, number, entry = heap[0]
            if number == entry.number and not entry.settled:
                return entry
            heapq.heappop(heap)
        return None


class Fluid:
    """`speed`: how fast the resource works for so many entries at once; 1 is its speed for one."""

    def __init__(self, speed: Callable[[int], float]) -> None:
        self._speed = speed
        self.now_ns = 0
        self._by_ratio: list[tuple[float, Place, Entry]] = []
        self._capped_count = 0
        """How many at the beginning of `_by_ratio` are capped."""
        self._capped_milli = self._open_weight = 0
        self._clocks = {True: _Clock(), False: _Clock()}
        """By whether an entry is capped."""

    def move_to(self, now_ns: int) -> None:
        passed_ns = now_ns - self.now_ns
        self.now_ns = now_ns
        if passed_ns and self._by_ratio:
            for clock in self._clocks.values():
                clock.reads += passed_ns * clock.rate

    def add(self, entry: Entry, work_ns: int) -> None:
        self._open_weight += entry.weight
        self._measure(entry, work_ns)
        key = entry.ratio, entry.place
        position = bisect_left(self._by_ratio, key)
        self._by_ratio.insert(position, (*key, entry))
        if position < self._capped_count:
            self._capped_count += 1
            self._cap(entry)
        self._level()

    def remove(self, entry: Entry) -> None:
        entry.settled = True
        del self._by_ratio[bisect_left(self._by_ratio, (entry.ratio, entry.place))]
        if entry.capped:
            self._capped_count -= 1
            self._capped_milli -= entry.cap
        else:
            self._open_weight -= entry.weight
        self._level()
        if not self._by_ratio:
            for clock in self._clocks.values():
                clock.reads = 0.0  # so that readings don't lose precision over days

    def left_ns(self, entry: Entry) -> float:
        """Its work that is not done; negative if it was served for longer than its work needed."""
        left = entry.done_at - self._clocks[entry.capped].reads
        return left * (entry.cap / WHOLE_MILLI if entry.capped else entry.weight)

    def done_ns(self, entry: Entry) -> int:
        """When its work is done if nobody comes or goes before."""
        clock = self._clocks[entry.capped]
        return self.now_ns + max(0, round((entry.done_at - clock.reads) / clock.rate))

    def next_done(self) -> tuple[int, Entry] | None:
        """The unsettled entry that is done first, and when."""
        found: tuple[int, Entry] | None = None
        for clock in self._clocks.values():
            entry = clock.first()
            if entry is not None:
                done_ns = self.done_ns(entry)
                if found is None or (done_ns, entry.place) < (found[0], found[1].place):
                    found = done_ns, entry
        return found

    def _level(self) -> None:
        """Caps those that would get their caps or more, and no others."""
        while self._capped_count < len(self._by_ratio):
            ratio, _, entry = self._by_ratio[self._capped_count]
            if ratio * self._open_weight > WHOLE_MILLI - self._capped_milli:
                break
            self._capped_count += 1
            self._cap(entry)
        while self._capped_count:
            ratio, _, entry = self._by_ratio[self._capped_count - 1]
            if ratio * (self._open_weight + entry.weight) <= WHOLE_MILLI - self._capped_milli + entry.cap:
                break
            self._capped_count -= 1
            self._uncap(entry)
        speed = self._speed(len(self._by_ratio))
        self._clocks[True].rate = speed
        room = (WHOLE_MILLI - self._capped_milli) / WHOLE_MILLI
        self._clocks[False].rate = speed * room / self._open_weight if self._open_weight else 0.0

    def _cap(self, entry: Entry) -> None:
        left_ns = self.left_ns(entry)
        self._open_weight -= entry.weight
        self._capped_milli += entry.cap
        entry.capped = True
        self._measure(entry, left_ns)

    def _uncap(self, entry: Entry) -> None:
        left_ns = self.left_ns(entry)
        self._capped_milli -= entry.cap
        self._open_weight += entry.weight
        entry.capped = False
        self._measure(entry, left_ns)

    def _measure(self, entry: Entry, left_ns: float) -> None:
        """From now on by the clock of its kind."""
        clock = self._clocks[entry.capped]
        entry.done_at = clock.reads + left_ns / (entry.cap / WHOLE_MILLI if entry.capped else entry.weight)
        entry.number += 1
        if not entry.settled:
            heapq.heappush(clock.heap, (entry.done_at, entry.place, entry.number, entry))
