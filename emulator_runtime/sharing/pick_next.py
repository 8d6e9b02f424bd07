"""An engine that serves one demand after the other, uninterrupted: at the end of each it picks the next by the mode's key."""

from __future__ import annotations

import heapq
from typing import Protocol

from emulator_runtime.sharing.demands import Answer, Demand, Piece, Place, Queued, Session, WithSessions, without_stale

Key = tuple[float, ...]


class Order(Protocol):
    """In which order a mode serves demands that are ready. One object for each resource; `key` is called once for each demand."""

    def key(self, session: Session, demand: Demand, *, idle: bool) -> Key:
        """The least is served first. `idle`: the resource had nothing to do until the demand became ready."""
        ...

    def served(self, session: Session, demand: Demand, key: Key) -> None:
        """The demand has been picked."""
        ...

    def left(self, session: Session) -> None:
        """The session will demand nothing more."""
        ...


_Entry = tuple[Key, Place, Queued]


class PickNext(WithSessions):
    """Answers at dispatch: when the resource is free and a demand is ready, it is known when the demand will end.

    A session should queue its next demand before the present one ends. Otherwise others are always served first, whatever the
    order says: at the decision nothing of this session is there.
    """

    def __init__(self, order: Order) -> None:
        super().__init__()
        self._order = order
        self._coming: list[tuple[Place, Queued]] = []
        self._ready: list[_Entry] = []
        self._start_ns = self._free_ns = self._held_ns = 0
        self._served = ""

    def submit(self, demand: Demand) -> None:
        queued = self._sessions.queue(demand)
        self._coming = without_stale(self._coming, self._sessions)
        heapq.heappush(self._coming, (queued.place, queued))

    def next_ns(self) -> int | None:
        """The next decision: the resource is free, and a demand that may be served is ready."""
        if self._first_ready() is not None:
            return max(self._free_ns, self._held_ns)
        coming = self._first_coming()
        return None if coming is None else max(self._free_ns, self._held_ns, coming.demand.ready_ns)

    def advance(self, now_ns: int) -> list[Answer]:
        answers: list[Answer] = []
        while (when_ns := self.next_ns()) is not None and when_ns <= now_ns:
            answers.append(self._serve(when_ns))
        return answers

    def leave(self, session: str, now_ns: int) -> None:
        left = self._sessions.joined.get(session)
        if left is None:
            return
        self._sessions.leave(session)
        self._order.left(left)
        if self._served == session:
            self._free_ns = min(self._free_ns, max(now_ns, self._start_ns))
            self._served = ""

    def withdraw(self, session: str) -> None:
        super().withdraw(session)
        if len(self._ready) > 2 * len(self._sessions.joined):  # a session has at most one ready demand
            self._ready = [entry for entry in self._ready if self._sessions.holds(entry[2])]
            heapq.heapify(self._ready)

    def hold(self, until_ns: int) -> None:
        self._held_ns = until_ns

    def _serve(self, when_ns: int) -> Answer:
        self._make_ready(when_ns)
        entry = self._first_ready()
        assert entry is not None
        heapq.heappop(self._ready)
        key, _, picked = entry
        session, demand = picked.session, picked.demand
        del self._sessions.queued[demand.session]
        self._order.served(session, demand, key)
        start_ns = max(self._free_ns, self._held_ns, demand.ready_ns)
        self._start_ns, self._free_ns = start_ns, start_ns + demand.work_ns
        self._served = demand.session
        return Answer(demand.session, demand.sequence, start_ns, Piece(start_ns, self._free_ns, demand.work_ns))

    def _make_ready(self, when_ns: int) -> None:
        idle = when_ns > max(self._free_ns, self._held_ns)
        while (coming := self._first_coming()) is not None and coming.demand.ready_ns <= when_ns:
            heapq.heappop(self._coming)
            key = self._order.key(coming.session, coming.demand, idle=idle)
            heapq.heappush(self._ready, (key, coming.place, coming))

    def _first_ready(self) -> _Entry | None:
        """Entries of sessions that left, and of demands that were withdrawn, are dropped here."""
        while self._ready and not self._sessions.holds(self._ready[0][2]):
            heapq.heappop(self._ready)
        return self._ready[0] if self._ready else None

    def _first_coming(self) -> Queued | None:
        while self._coming and not self._sessions.holds(self._coming[0][1]):
            heapq.heappop(self._coming)
        return self._coming[0][1] if self._coming else None
