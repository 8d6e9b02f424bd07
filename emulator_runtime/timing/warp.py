"""When a warp clock may jump: only when every participant waits. Pure; the owner of the clock moves it.

A participant is busy from the moment it is registered (before its process is spawned) until it says that it waits, and
again from the moment it is woken or handed something. Whoever hands it something marks it busy first, so there is no
instant at which work is on its way and everybody seems to wait.
"""

from __future__ import annotations

import heapq

NEVER_NS = 2**62
"""The deadline of a participant that waits for something other than time."""


class WarpCoordinator:
    """Who is busy and who waits until when; deadlines are emulated nanoseconds."""

    def __init__(self) -> None:
        self._waiting: dict[str, int] = {}
        self._busy: set[str] = set()
        self._heap: list[tuple[int, str]] = []

    def register(self, name: str) -> None:
        """A new participant, busy. Raises ValueError if the name is taken."""
        if name in self._busy or name in self._waiting:
            raise ValueError(f"participant {name!r} is registered already")
        self._busy.add(name)

    def waits(self, name: str, deadline_ns: int = NEVER_NS) -> None:
        """`name` has nothing to do until `deadline_ns`, or until it is handed something."""
        self._busy.remove(name)
        self._waiting[name] = deadline_ns
        if deadline_ns < NEVER_NS:
            heapq.heappush(self._heap, (deadline_ns, name))

    def busy(self, name: str) -> None:
        """`name` is about to be handed something; nothing changes if it is busy."""
        if self._waiting.pop(name, None) is not None:
            self._busy.add(name)

    def leave(self, name: str) -> None:
        """`name` is gone, whatever it did."""
        self._busy.discard(name)
        self._waiting.pop(name, None)

    @property
    def all_wait(self) -> bool:
        return not self._busy

    def earliest_ns(self) -> int | None:
        """The earliest deadline of a waiting participant."""
        while self._heap and self._waiting.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)  # woken or gone since
        return self._heap[0][0] if self._heap else None

    def due(self, now_ns: int) -> list[str]:
        """The participants whose deadline has come, in order of deadline and name; they are busy from now on."""
        names = []
        while (deadline := self.earliest_ns()) is not None and deadline <= now_ns:
            name = heapq.heappop(self._heap)[1]
            self.busy(name)
            names.append(name)
        return names
