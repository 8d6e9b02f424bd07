"""Decides when a warp clock may jump: when every participant waits. Only bookkeeping; the clock's owner moves the clock.

A participant is busy from its registration (before its process starts) until it reports that it waits, and again from when
it is woken or gets a message. The sender marks the recipient as busy before it sends, so the participants never all seem to
wait while a message is on its way.
"""

from __future__ import annotations

import heapq

NEVER_NS = 2**62
"""The deadline of a participant that waits for an event instead of a time."""


class WarpCoordinator:
    """Which participants are busy, and until when the others wait. Deadlines are emulated nanoseconds."""

    def __init__(self) -> None:
        self._waiting: dict[str, int] = {}
        self._busy: set[str] = set()
        self._heap: list[tuple[int, str]] = []

    def register(self, name: str) -> None:
        """Add a participant as busy. Raises ValueError if the name is in use."""
        if name in self._busy or name in self._waiting:
            raise ValueError(f"participant {name!r} is registered already")
        self._busy.add(name)

    def waits(self, name: str, deadline_ns: int = NEVER_NS) -> None:
        """`name` waits until `deadline_ns`, or until it gets a message."""
        self._busy.remove(name)
        self._waiting[name] = deadline_ns
        if deadline_ns < NEVER_NS:
            heapq.heappush(self._heap, (deadline_ns, name))

    def busy(self, name: str) -> None:
        """Mark `name` as busy, before a message is sent to it. No effect if it is busy already."""
        if self._waiting.pop(name, None) is not None:
            self._busy.add(name)

    def leave(self, name: str) -> None:
        """Remove `name`, whether it is busy or waits."""
        self._busy.discard(name)
        self._waiting.pop(name, None)

    @property
    def all_wait(self) -> bool:
        return not self._busy

    def earliest_ns(self) -> int | None:
        """The earliest deadline of the waiting participants."""
        while self._heap and self._waiting.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)  # an outdated entry: the participant was woken or removed
        return self._heap[0][0] if self._heap else None

    def due(self, now_ns: int) -> list[str]:
        """The participants whose deadline has passed, ordered by deadline and name. They become busy."""
        names = []
        while (deadline := self.earliest_ns()) is not None and deadline <= now_ns:
            name = heapq.heappop(self._heap)[1]
            self.busy(name)
            names.append(name)
        return names
