"""The demands of one container for one device.

The processes of one grant take turns within its part of a device, in the order in which their demands are ready, so that a
container with more processes gets no larger part:

    process a --+
                +-- lane of the grant --+
    process b --+                       +-- engine of the device
    process c ----- lane of another ----+
"""

from __future__ import annotations

from dataclasses import dataclass, field

from emulator_runtime.sharing.demands import Answer, Demand, Piece
from sharing_manager.devices.pool import Served
from sharing_manager.grants.grant import Grant
from sharing_manager.grants.session import Session


@dataclass(slots=True)
class Lane:
    """The demands of one grant for one device. The engine has at most one that it has begun and one behind it.

    `waiting`: by session. `begun`: by the number that the engine knows it by. The last one of `begun` may not have been begun
    yet: then the engine says that it waits.
    """

    grant: Grant
    device: Served
    waiting: dict[Session, Demand] = field(default_factory=dict)
    begun: dict[int, tuple[Session, Demand]] = field(default_factory=dict)
    number: int = 0
    closed: bool = False
    """Whether the grant, or the process that is served, leaves the device: nothing more is passed on."""
    end_ns: int = 0
    """When the last piece of the lane ends. A demand counts as ready then at the earliest, as it would if one process did it all;
    otherwise several processes that wait in line at once would be served more often than one of another grant."""
    begins_ns: int = 0
    """Nothing begins before: the device's state is known from here on, since a restart."""
    resumed: dict[Session, tuple[int, int]] = field(default_factory=dict)
    """The demands that were half served before a restart: number, and the work that is left."""

    def put(self, session: Session, demand: Demand) -> None:
        """Queue a demand; it replaces one of the same session that waits."""
        self.take_back()
        self.waiting[session] = demand
        self.feed()

    def drop(self, session: Session) -> None:
        """Forget the session's demand that waits."""
        self.take_back()
        self.waiting.pop(session, None)
        self.feed()

    def take_back(self) -> None:
        """What the engine hasn't begun waits here again."""
        if self.device.engine.waits(self.grant.holder):
            self.device.engine.withdraw(self.grant.holder)
            session, demand = self.begun.pop(self.number)
            self.waiting[session] = demand

    def feed(self) -> None:
        """Pass on the demand that is ready first, if the engine has none of this grant behind the one that it serves."""
        if not self.waiting:
            return
        holder, engine = self.grant.holder, self.device.engine
        if not self.closed and not engine.waits(holder):
            session, demand = self._first_waiting()
            del self.waiting[session]
            self.number += 1
            self.begun[self.number] = session, demand
            number, left_ns = self.resumed.get(session, (-1, 0))
            work_ns = left_ns if number == demand.sequence else demand.work_ns
            ready_ns = max(demand.ready_ns, self.end_ns, self.begins_ns)
            engine.submit(Demand(holder, self.number, ready_ns, work_ns, demand.remaining_ns))

    def _first_waiting(self) -> tuple[Session, Demand]:
        if len(self.waiting) == 1:
            return next(iter(self.waiting.items()))
        return min(self.waiting.items(), key=lambda each: (each[1].ready_ns, each[0].name))

    def answered(self, answer: Answer) -> tuple[Session, Answer]:
        """Whose demand that was, and the answer with the session's own number."""
        session, demand = self.begun.pop(answer.sequence)
        piece = answer.piece
        if self.resumed.pop(session, (-1, 0))[0] == demand.sequence:
            piece = Piece(max(demand.ready_ns, self.end_ns), piece.end_ns, demand.work_ns)
        self.end_ns = piece.end_ns
        return session, Answer(session.key, demand.sequence, answer.decided_ns, piece)

    def take_over(self, lane: Lane) -> None:
        """Go on with the demands that wait in an earlier lane."""
        self.waiting |= lane.waiting
        self.feed()

    def serves(self, session: Session) -> bool:
        """Whether the engine has begun a demand of the session and hasn't answered it."""
        return not self.waits(session) and any(owner is session for owner, _ in self.begun.values())

    def waits(self, session: Session) -> bool:
        """Whether the session has a demand that the engine hasn't begun."""
        if session in self.waiting:
            return True
        return self.device.engine.waits(self.grant.holder) and self.begun[self.number][0] is session
