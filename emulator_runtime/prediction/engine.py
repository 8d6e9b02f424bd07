"""The schedule of a device's compute units or of a copy engine, by the rule of the online emulation (cuda/src/core/engine.h)."""

from __future__ import annotations

from array import array
from bisect import bisect_right


class Engine:
    """Does one thing at a time. Work that was issued earlier goes first; later work fills the gaps that are left, also in pieces.

    `starts`, `ends`: when the engine is taken (ns), in order and apart from each other. `start_ns`: when the last work began.
    The core keeps 256 intervals; this forgets none.
    """

    __slots__ = ("ends", "start_ns", "starts")

    def __init__(self) -> None:
        self.starts, self.ends = array("q"), array("q")
        self.start_ns = 0

    def take(self, ready_ns: int, duration_ns: int) -> int:
        """Take so much of the engine, not before `ready_ns`; the end."""
        ends = self.ends
        if ends and ready_ns < ends[-1]:
            return self._fill(ready_ns, duration_ns)
        self.start_ns = ready_ns
        end_ns = ready_ns + duration_ns
        if duration_ns:
            if ends and ends[-1] == ready_ns:
                ends[-1] = end_ns
            else:
                self.starts.append(ready_ns)
                ends.append(end_ns)
        return end_ns

    def _fill(self, ready_ns: int, duration_ns: int) -> int:
        """Before the last interval's end. Example: 8 ms ready at 6, the engine taken from 10 to 15: from 6 to 10 and 15 to 19."""
        starts, ends = self.starts, self.ends
        first = after = bisect_right(ends, ready_ns)
        at_ns, left_ns, start_ns = ready_ns, duration_ns, -1
        while after < len(ends):
            gap_ns = starts[after] - at_ns
            if gap_ns > 0:
                if start_ns < 0:
                    start_ns = at_ns
                if gap_ns >= left_ns:
                    break
                left_ns -= gap_ns
            at_ns = ends[after]
            after += 1
        self.start_ns = start_ns if start_ns >= 0 else at_ns
        end_ns = at_ns + left_ns
        if duration_ns:
            self._replace(first, after, end_ns)
        return end_ns

    def _replace(self, first: int, after: int, end_ns: int) -> None:
        """From the first gap that was used up to the end, all is taken now; with what touches it, that is one interval."""
        starts, ends, from_ns, until_ns = self.starts, self.ends, self.start_ns, end_ns
        while first < after and ends[first] < from_ns:
            first += 1
        if first < after and starts[first] < from_ns:
            from_ns = starts[first]
        if first > 0 and ends[first - 1] == from_ns:
            first -= 1
            from_ns = starts[first]
        if after < len(ends) and starts[after] == end_ns:
            until_ns = ends[after]
            after += 1
        starts[first:after] = array("q", (from_ns,))
        ends[first:after] = array("q", (until_ns,))
