"""What sessions demand of one resource, and what an engine answers.

A session may use a resource (a device, or the storage, network or a link of a node): a job's task in the simulator, a grant in
the sharing manager (core/lane.py). It demands work (nanoseconds of the undivided resource) and is answered by a piece of time.
A demand names one resource; a job that needs several makes a demand for each.

Decisions follow device time, never the order of arrival. Simultaneous events have one order: ends of work, then demands that
become ready, then decisions by the mode's key, readiness, row of the job, rank, sequence.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple, Protocol

from emulator_runtime.domain.errors import RefusedError

WHOLE_MILLI = 1000
"""The whole resource, in thousandths."""


@dataclass(frozen=True, slots=True)
class Terms:
    """On which terms a job uses a device: its place in the workload, the rank of the process, the share of the device in
    thousandths, and its priority (higher goes first). A mode reads the terms that it knows."""

    row: int = 0
    rank: int = 0
    milli: int = WHOLE_MILLI
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Session:
    """One that may use a resource, and its terms.

    `row`, `rank`: place of its job in the workload, and of the process in its job; they order what is otherwise equal.
    `weight`: its share relative to others, `priority`: higher goes first, `cap_milli`: the most that it uses, in thousandths
    of the resource. A mode reads the terms that it knows.
    """

    name: str
    row: int = 0
    rank: int = 0
    weight: int = 1
    priority: int = 0
    cap_milli: int = WHOLE_MILLI

    def __post_init__(self) -> None:
        if self.weight < 1:
            raise RefusedError(f"the weight of session {self.name} must be at least 1, not {self.weight}")
        if not 1 <= self.cap_milli <= WHOLE_MILLI:
            raise RefusedError(f"the cap of session {self.name} must be 1 to 1000 thousandths, not {self.cap_milli}")


class Demand(NamedTuple):
    """`work_ns` of the undivided resource, not before `ready_ns`.

    `sequence`: number of the demand in its session. `remaining_ns`: work of the whole job that is left, this demand included,
    for modes that prefer short jobs.
    """

    session: str
    sequence: int
    ready_ns: int
    work_ns: int
    remaining_ns: int = 0


class Piece(NamedTuple):
    """The interval [start_ns, end_ns) in which `work_ns` are done. Its average rate is work over length."""

    start_ns: int
    end_ns: int
    work_ns: int


class Answer(NamedTuple):
    """The piece of a demand, decided at `decided_ns` of device time."""

    session: str
    sequence: int
    decided_ns: int
    piece: Piece


@dataclass(frozen=True, slots=True)
class HalfServed:
    """The demands that are begun and have not ended at `at_ns` of device time.

    `left`: by session, the number of its demand, and the work in nanoseconds that is left of it."""

    at_ns: int
    left: dict[str, tuple[int, int]]


class Engine(Protocol):
    """Divides one resource. The caller passes times that never decrease."""

    def join(self, session: Session) -> None:
        """Lets `session` demand. Raises RefusedError if the resource can't have it beside the others."""
        ...

    def submit(self, demand: Demand) -> None:
        """Queues a demand; a session may queue one behind the one that is being served. Raises RefusedError."""
        ...

    def next_ns(self) -> int | None:
        """When `advance` has something to do, as far as known; None: not before another demand."""
        ...

    def advance(self, now_ns: int) -> list[Answer]:
        """All decisions that are due by `now_ns`, in their order. How often it is called changes no decision."""
        ...

    def waits(self, session: str) -> bool:
        """Whether the session has a demand of which nothing has been served."""
        ...

    def withdraw(self, session: str) -> None:
        """Takes back the demand of a session that `waits`."""
        ...

    def leave(self, session: str, now_ns: int) -> None:
        """Forgets a session, and frees what it was given beyond `now_ns`. The caller has advanced to `now_ns`."""
        ...

    def uses(self, session: str) -> bool:
        """Whether the session has joined."""
        ...

    @property
    def in_use(self) -> bool:
        """Whether any session has joined."""
        ...

    def busy_since_ns(self) -> int | None:
        """Since when it serves work that it hasn't answered; None: it serves none."""
        ...

    def half_served(self) -> HalfServed | None:
        """What a restart must know to go on at the last event; None: demands are answered when they begin."""
        ...

    def hold(self, until_ns: int) -> None:
        """Begins nothing before `until_ns`, because of work that the engine may not know; this replaces what was said before. No
        effect where work overlaps."""
        ...


_MANY = 64
"""So many stale entries may stay in a heap."""
Place = tuple[int, int, int, int, int]
"""The order of demands between which a mode makes no difference: readiness, row, rank, sequence. The last number is unique; it
only keeps a demand apart from an equal one of a session that has left."""


@dataclass(slots=True, eq=False)
class Queued:
    """A demand that waits."""

    place: Place
    session: Session
    demand: Demand


class Sessions:
    """The sessions of a resource, each with at most one queued demand."""

    def __init__(self) -> None:
        self.joined: dict[str, Session] = {}
        self.queued: dict[str, Queued] = {}
        self._numbers = count()

    def join(self, session: Session) -> None:
        if session.name in self.joined:
            raise RefusedError(f"session {session.name} uses this resource already")
        self.joined[session.name] = session

    def queue(self, demand: Demand) -> Queued:
        """Raises RefusedError for work that is negative, an unknown session, or a second queued demand of one."""
        session = self.joined.get(demand.session)
        if session is None:
            raise RefusedError(f"session {demand.session} doesn't use this resource")
        if demand.work_ns < 0:
            raise RefusedError(f"the work of session {demand.session} must not be negative: {demand.work_ns} ns")
        waiting = self.queued.get(demand.session)
        if waiting is not None:
            raise RefusedError(f"session {demand.session} has demand {waiting.demand.sequence} queued already")
        place = demand.ready_ns, session.row, session.rank, demand.sequence, next(self._numbers)
        queued = self.queued[demand.session] = Queued(place, session, demand)
        return queued

    def holds(self, queued: Queued) -> bool:
        """Whether it is still queued; the engines' heaps drop late what isn't."""
        return self.queued.get(queued.session.name) is queued

    def leave(self, name: str) -> None:
        self.joined.pop(name, None)
        self.queued.pop(name, None)


def without_stale(heap: list[tuple[Place, Queued]], sessions: Sessions) -> list[tuple[Place, Queued]]:
    """The heap without demands that aren't queued any more, if those are many; otherwise the heap as it is."""
    if len(heap) < _MANY + 2 * len(sessions.queued):
        return heap
    live = [entry for entry in heap if sessions.holds(entry[1])]
    heapq.heapify(live)
    return live


class WithSessions:
    """What all engines do alike with their sessions (see Engine)."""

    def __init__(self) -> None:
        self._sessions = Sessions()

    def join(self, session: Session) -> None:
        self._sessions.join(session)

    def waits(self, session: str) -> bool:
        return session in self._sessions.queued

    def withdraw(self, session: str) -> None:
        del self._sessions.queued[session]

    def uses(self, session: str) -> bool:
        return session in self._sessions.joined

    @property
    def in_use(self) -> bool:
        return bool(self._sessions.joined)

    def busy_since_ns(self) -> int | None:
        """None: work is answered when it begins."""
        return None

    def half_served(self) -> HalfServed | None:
        """None: work is answered when it begins."""
        return None

    def hold(self, until_ns: int) -> None:
        """No effect where work overlaps."""
