"""The utilisation of a device: the share of the last second of emulated time in which it was leased."""

from __future__ import annotations

from collections import deque

from emulator_runtime.domain.units import NS_PER_S

WINDOW_NS = NS_PER_S
"""Length of the window of emulated time over which utilisation is computed. nvidia-smi samples over at most one second,
too."""
_MOST_INTERVALS = 8192


class BusyTime:
    """The busy intervals of a device in the last WINDOW_NS and in the future (booked leases): disjoint and in order."""

    def __init__(self) -> None:
        self._intervals: deque[list[int]] = deque()
        self._sum_ns = 0

    def add(self, start_ns: int, end_ns: int, now_ns: int) -> None:
        """Add the busy interval [start_ns, end_ns); what overlaps the last one counts once. `now_ns` is the manager's clock,
        not the client's."""
        self._forget(now_ns)
        intervals = self._intervals
        if intervals:
            start_ns = max(start_ns, intervals[-1][1])
            if start_ns >= end_ns:
                return
        if intervals and intervals[-1][1] == start_ns:
            intervals[-1][1] = end_ns
        else:
            intervals.append([start_ns, end_ns])
        self._sum_ns += end_ns - start_ns
        if len(intervals) > _MOST_INTERVALS:
            self._drop_first()

    def __len__(self) -> int:
        """Number of stored intervals."""
        return len(self._intervals)

    def cut(self, end_ns: int) -> int:
        """Remove all busy time after `end_ns`. Returns how much that was."""
        intervals, before_ns = self._intervals, self._sum_ns
        while intervals and intervals[-1][1] > end_ns:
            start_ns, was_ns = intervals[-1]
            self._sum_ns -= was_ns - max(start_ns, end_ns)
            if start_ns < end_ns:
                intervals[-1][1] = end_ns
            else:
                intervals.pop()
        return before_ns - self._sum_ns

    def share(self, now_ns: int, since_ns: int | None = None) -> float:
        """The busy share of the window that ends now; `since_ns`: since when the device does work that isn't added yet. Its cost
        grows with the intervals after `now_ns`, not with those in the window."""
        self._forget(now_ns)
        busy_ns = self._sum_ns
        if self._intervals:
            busy_ns -= max(0, now_ns - WINDOW_NS - self._intervals[0][0])
        for start_ns, end_ns in reversed(self._intervals):
            if end_ns <= now_ns:
                break
            busy_ns -= end_ns - max(start_ns, now_ns)
        if since_ns is not None:
            added_until_ns = self._intervals[-1][1] if self._intervals else 0
            busy_ns += max(0, now_ns - max(since_ns, added_until_ns, now_ns - WINDOW_NS))
        return min(max(0, busy_ns), WINDOW_NS) / WINDOW_NS

    def _forget(self, now_ns: int) -> None:
        while self._intervals and self._intervals[0][1] <= now_ns - WINDOW_NS:
            self._drop_first()

    def _drop_first(self) -> None:
        start_ns, end_ns = self._intervals.popleft()
        self._sum_ns -= end_ns - start_ns
