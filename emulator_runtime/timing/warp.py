"""Decides when a warp clock may jump: when every participant waits and no message is under way. Only bookkeeping; the clock's
owner moves the clock.

A participant is busy from its registration (before its process starts) until it reports that it waits, and again from when
it is woken or gets a message of the clock's owner. The owner marks the recipient as busy before it sends, so the participants
never all seem to wait while a message is on its way.

Two participants also have connections to each other (jobs and sharing managers). Each side reports how many frames of a
connection it has sent and received; time stands while the counts of the two sides differ.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping

NEVER_NS = 2**62
"""The deadline of a participant that waits for an event instead of a time."""

Frames = Mapping[str, tuple[int, int] | None]
"""By connection: the number of frames sent and received, or None once it is closed."""


class WarpCoordinator:
    """Which participants are busy, and until when the others wait. Deadlines are emulated nanoseconds.

    A participant that decides (registered with `decides`) is woken after all others that wait for the same time: what they do
    then may matter to its decision.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, int] = {}
        self._busy: set[str] = set()
        self._deciding: set[str] = set()
        self._heaps: dict[bool, list[tuple[int, str]]] = {False: [], True: []}
        """By whether the participants decide."""
        self._sent: dict[str, int] = {}
        self._frames: dict[str, dict[str, tuple[int, int]]] = {}
        """By connection and participant."""
        self._uneven: set[str] = set()
        """Connections with frames under way."""

    def register(self, name: str, *, decides: bool = False, handled: int = 0) -> None:
        """Add a participant as busy. `handled`: messages of the owner that it has handled before. Raises ValueError if the name
        is in use."""
        if name in self._busy or name in self._waiting:
            raise ValueError(f"participant {name!r} is registered already")
        self._busy.add(name)
        self._sent[name] = handled
        if decides:
            self._deciding.add(name)

    def waits(
        self, name: str, deadline_ns: int = NEVER_NS, *, handled: int | None = None, frames: Frames | None = None
    ) -> None:
        """`name` waits until `deadline_ns`, or until it gets a message. `handled`: how many messages of the owner it has handled;
        a report from before the last one only counts its frames. `frames`: of a participant that decides, the connections
        that have changed; of others, all connections."""
        if frames is not None:
            self._count(name, frames)
        if handled is not None and handled != self._sent[name]:
            return
        self._busy.discard(name)
        self._waiting[name] = deadline_ns
        if deadline_ns < NEVER_NS:
            heapq.heappush(self._heaps[name in self._deciding], (deadline_ns, name))

    def busy(self, name: str) -> None:
        """Mark `name` as busy, before a message is sent to it. No effect if it is busy already."""
        if self._waiting.pop(name, None) is not None:
            self._busy.add(name)

    def sends_to(self, name: str) -> None:
        """Mark `name` as busy until it reports that it has handled the message that the owner sends to it now."""
        self._sent[name] += 1
        self.busy(name)

    def leave(self, name: str) -> None:
        """Remove `name`, whether it is busy or waits."""
        self._busy.discard(name)
        self._waiting.pop(name, None)
        self._sent.pop(name, None)
        if name in self._deciding:
            closed = {connection: None for connection, sides in self._frames.items() if name in sides}
            self._count(name, closed)
            self._deciding.discard(name)
        else:
            self._count(name, {})

    @property
    def all_wait(self) -> bool:
        return not self._busy and not self._uneven

    def earliest_ns(self) -> int | None:
        """The earliest deadline at which a participant can be woken."""
        deadlines = [self._first(decides=False)]
        if self.all_wait:
            deadlines.append(self._first(decides=True))
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def due(self, now_ns: int) -> list[str]:
        """The participants to wake now, ordered by deadline and name. They become busy."""
        return self._due(now_ns, decides=False) or (self._due(now_ns, decides=True) if self.all_wait else [])

    def _due(self, now_ns: int, *, decides: bool) -> list[str]:
        names = []
        while (deadline := self._first(decides=decides)) is not None and deadline <= now_ns:
            name = heapq.heappop(self._heaps[decides])[1]
            self.sends_to(name)
            names.append(name)
        return names

    def _first(self, *, decides: bool) -> int | None:
        heap = self._heaps[decides]
        while heap and self._waiting.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)  # an outdated entry: the participant was woken or removed
        return heap[0][0] if heap else None

    def _count(self, name: str, frames: Frames) -> None:
        for connection, counts in frames.items():
            if counts is None:
                self._frames.get(connection, {}).pop(name, None)
            else:
                self._frames.setdefault(connection, {})[name] = counts
            self._compare(connection)
        if name not in self._deciding:
            for connection in [one for one, sides in self._frames.items() if name in sides and one not in frames]:
                del self._frames[connection]
                self._uneven.discard(connection)

    def _compare(self, connection: str) -> None:
        """A connection counts as soon as the participant that doesn't decide, which has opened it, reports it."""
        sides = self._frames.get(connection, {})
        opened = [counts for name, counts in sides.items() if name not in self._deciding]
        answered = [counts for name, counts in sides.items() if name in self._deciding]
        if not opened or [opened[0][::-1]] == answered:
            self._uneven.discard(connection)
        else:
            self._uneven.add(connection)
        if not sides:
            self._frames.pop(connection, None)
