"""Time slicing at step granularity, first in, first out: whoever asks first computes first (GPEmu section 2.4)."""

from __future__ import annotations


class Fifo:
    """Any number of holders; each step runs to its end, the next one starts back to back."""

    def __init__(self) -> None:
        self.holders: set[str] = set()
        self._free_at_ns = 0
        self._tail: tuple[str, int] | None = None  # holder and start of the last interval

    def admit(self, holder: str) -> None:
        self.holders.add(holder)

    def free_at_ns(self) -> int:
        return self._free_at_ns

    def occupy(self, holder: str, start_ns: int, end_ns: int) -> None:
        self._free_at_ns = max(self._free_at_ns, end_ns)
        self._tail = (holder, start_ns)

    def leave(self, holder: str, now_ns: int) -> None:
        self.holders.discard(holder)
        if self._tail is not None and self._tail[0] == holder:
            self._free_at_ns = min(self._free_at_ns, max(now_ns, self._tail[1]))
            self._tail = None
