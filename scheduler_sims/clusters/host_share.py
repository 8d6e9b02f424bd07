"""Starts and ends of jobs as work of the machines: up to some number at full speed, more of them share the machines equally."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K")
_MILLI = 1000


class HostShare(Generic[K]):
    """Egalitarian processor sharing: each of n pieces of work proceeds at speed min(1, slots / n). Times are nanoseconds.

    All pieces proceed alike, so a piece is done when what one piece has attained since the beginning has grown by its work. A
    piece ends at most 1 ns late for each change of n.

    Example: 1 slot, work of 2 s at 0 s and at 1 s: the first has 1 s left when the second comes, and ends at 3 s; the second
    ends at 4 s.
    """

    def __init__(self, slots: float) -> None:
        self._slots_milli = round(slots * _MILLI)
        self._now_ns = 0
        self._attained_ns = 0
        self._work: list[tuple[int, int, K]] = []
        """What must be attained, number of the piece, its key; a heap."""
        self._added = 0
        self.version = 0
        """Grows with each change of the pieces, after which the next one may be done at another time."""

    def add(self, now_ns: int, key: K, work_ns: int) -> None:
        """Begins a piece of work that takes `work_ns` alone. `now_ns` is at most `next_ns()` and never goes back."""
        self._advance(now_ns)
        self._added += 1
        self.version += 1
        heapq.heappush(self._work, (self._attained_ns + work_ns, self._added, key))

    def next_ns(self) -> int | None:
        """When the next piece is done, if no other begins; None without any."""
        if not self._work:
            return None
        speed, whole = self._speed()
        return self._now_ns - (self._attained_ns - self._work[0][0]) * whole // speed

    def take(self, now_ns: int) -> list[K]:
        """Removes what is done at `now_ns`, which is at most `next_ns()`; in the order of its begin where it ends together."""
        self._advance(now_ns)
        self.version += 1
        done = []
        while self._work and self._work[0][0] <= self._attained_ns:
            done.append(heapq.heappop(self._work)[2])
        return done

    def discard(self, now_ns: int, unwanted: Callable[[K], bool]) -> bool:
        """Ends pieces before they are done; returns whether there were any. `now_ns` is at most `next_ns()`."""
        self._advance(now_ns)
        left = [piece for piece in self._work if not unwanted(piece[2])]
        if len(left) == len(self._work):
            return False
        heapq.heapify(left)
        self._work = left
        self.version += 1
        return True

    def _advance(self, now_ns: int) -> None:
        if self._work:
            speed, whole = self._speed()
            self._attained_ns += (now_ns - self._now_ns) * speed // whole
        self._now_ns = now_ns

    def _speed(self) -> tuple[int, int]:
        """The speed of each piece, as a fraction."""
        whole = len(self._work) * _MILLI
        return min(self._slots_milli, whole), whole


def ends_ns(slots: float, pieces: Iterable[tuple[int, int]]) -> list[int]:
    """When each piece of work is done, given as (begin, duration alone) in order of their begins."""
    share, ends = HostShare[int](slots), dict[int, int]()

    def until(at_ns: int | None) -> None:
        while (due_ns := share.next_ns()) is not None and (at_ns is None or due_ns <= at_ns):
            ends.update(dict.fromkeys(share.take(due_ns), due_ns))

    for number, (begin_ns, work_ns) in enumerate(pieces):
        until(begin_ns)
        share.add(begin_ns, number, work_ns)
    until(None)
    return [ends[number] for number in range(len(ends))]
