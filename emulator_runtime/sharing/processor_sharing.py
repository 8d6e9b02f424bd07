"""An engine that serves all ready demands at once, each at a part of the resource (fluid.py has the parts).

A demand is answered LEAD_NS before its end, so that its session learns of the end in time. What changes within the lead no
longer changes the answer: the work that is then left, or was done too much, counts with the session's next demand.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from emulator_runtime.sharing.demands import (
    Answer,
    Demand,
    HalfServed,
    Piece,
    Place,
    Queued,
    WithSessions,
    without_stale,
)
from emulator_runtime.sharing.fluid import Entry, Fluid

LEAD_NS = 1_000_000
"""Two wake-ups take about 0.3 ms on a machine that isn't busy; the rest is for a busy one."""


class _Served(Entry):
    """A demand that is being served. `settled`: its end is fixed, or it is gone."""

    __slots__ = ("demand", "gone", "start_ns")

    def __init__(self, queued: Queued, start_ns: int) -> None:
        super().__init__(queued.session, queued.place)
        self.demand, self.start_ns = queued.demand, start_ns
        self.gone = False


class ProcessorSharing(WithSessions):
    """`speed`: how fast the resource works with so many demands at once; 1 is its speed with one."""

    def __init__(self, speed: Callable[[int], float] = lambda _number: 1.0, lead_ns: int = LEAD_NS) -> None:
        super().__init__()
        self._fluid, self._lead_ns = Fluid(speed), lead_ns
        self._coming: list[tuple[Place, Queued]] = []
        self._present: dict[str, _Served] = {}
        self._ends: list[tuple[int, Place, _Served]] = []
        self._owed_ns: dict[str, int] = {}
        """By session: work that its last piece did too little (negative: too much)."""

    def submit(self, demand: Demand) -> None:
        queued = self._sessions.queue(demand)
        self._coming = without_stale(self._coming, self._sessions)
        heapq.heappush(self._coming, (queued.place, queued))

    def busy_since_ns(self) -> int | None:
        return min((served.start_ns for served in self._present.values()), default=None)

    def half_served(self) -> HalfServed:
        left = {
            name: (served.demand.sequence, max(0, round(self._fluid.left_ns(served))))
            for name, served in self._present.items()
        }
        return HalfServed(self._fluid.now_ns, left)

    def next_ns(self) -> int | None:
        return self._next()[0]

    def advance(self, now_ns: int) -> list[Answer]:
        answers: list[Answer] = []
        while True:
            when_ns, act = self._next()
            if when_ns is None or when_ns > now_ns:
                return answers
            self._fluid.move_to(when_ns)
            if (answer := act()) is not None:
                answers.append(answer)

    def leave(self, session: str, now_ns: int) -> None:
        self._sessions.leave(session)
        self._owed_ns.pop(session, None)
        served = self._present.get(session)
        if served is not None:
            self._fluid.move_to(now_ns)
            self._remove(served)

    def _next(self) -> tuple[int | None, Callable[[], Answer | None]]:
        """The next event: of simultaneous ones, ends come first, then beginnings, then decisions."""
        when_ns, act = self._next_end(), self._end
        ready_ns = self._next_ready()
        if ready_ns is not None and (when_ns is None or ready_ns < when_ns):
            when_ns, act = ready_ns, self._begin
        done = self._fluid.next_done()
        if done is not None:
            decision_ns = max(self._fluid.now_ns, done[0] - self._lead_ns)
            if when_ns is None or decision_ns < when_ns:
                return decision_ns, self._decide
        return when_ns, act

    def _next_end(self) -> int | None:
        while self._ends and self._ends[0][2].gone:
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else None

    def _next_ready(self) -> int | None:
        """A session's next demand isn't served before its present one has ended."""
        while self._coming:
            queued = self._coming[0][1]
            if self._sessions.holds(queued) and queued.session.name not in self._present:
                return max(queued.demand.ready_ns, self._fluid.now_ns)
            heapq.heappop(self._coming)  # `_remove` brings it back when the present one has ended
        return None

    def _begin(self) -> None:
        queued = heapq.heappop(self._coming)[1]
        name = queued.session.name
        del self._sessions.queued[name]
        work_ns = queued.demand.work_ns + self._owed_ns.pop(name, 0)
        if work_ns < 0:
            self._owed_ns[name] = work_ns
        served = self._present[name] = _Served(queued, self._fluid.now_ns)
        self._fluid.add(served, max(0, work_ns))

    def _decide(self) -> Answer:
        found = self._fluid.next_done()
        assert found is not None
        end_ns, served = found
        assert isinstance(served, _Served)
        served.settled = True
        heapq.heappush(self._ends, (end_ns, served.place, served))
        demand = served.demand
        piece = Piece(served.start_ns, end_ns, demand.work_ns)
        return Answer(demand.session, demand.sequence, self._fluid.now_ns, piece)

    def _end(self) -> None:
        served = heapq.heappop(self._ends)[2]
        name = served.demand.session
        self._owed_ns[name] = self._owed_ns.get(name, 0) + round(self._fluid.left_ns(served))
        self._remove(served)

    def _remove(self, served: _Served) -> None:
        name = served.demand.session
        served.gone = True
        del self._present[name]
        self._fluid.remove(served)
        if (queued := self._sessions.queued.get(name)) is not None:
            heapq.heappush(self._coming, (queued.place, queued))
