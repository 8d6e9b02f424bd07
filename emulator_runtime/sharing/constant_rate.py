"""An engine for resources that sessions don't share: exclusive devices, whole GPUs as well as MIG instances."""

from __future__ import annotations

from emulator_runtime.domain.errors import RefusedError
from emulator_runtime.sharing.demands import Answer, Demand, Piece, Session, WithSessions


class ConstantRate(WithSessions):
    """One session at a time; its demands follow each other and take as long as their work."""

    def __init__(self) -> None:
        super().__init__()
        self._free_ns = self._held_ns = 0

    def join(self, session: Session) -> None:
        """Raises RefusedError if another session has the resource."""
        if others := self._sessions.joined.keys() - {session.name}:
            raise RefusedError(
                f"it is exclusive and {', '.join(sorted(others))} holds it; wait until that ends, or share the device"
            )
        super().join(session)

    def submit(self, demand: Demand) -> None:
        self._sessions.queue(demand)

    def next_ns(self) -> int | None:
        return min((queued.demand.ready_ns for queued in self._sessions.queued.values()), default=None)

    def advance(self, now_ns: int) -> list[Answer]:
        """Answers at once, also demands that become ready after `now_ns`: no other session can come before them."""
        return [self._served(queued.demand) for queued in list(self._sessions.queued.values())]

    def hold(self, until_ns: int) -> None:
        self._held_ns = until_ns

    def leave(self, session: str, now_ns: int) -> None:
        self._sessions.leave(session)
        self._free_ns = min(self._free_ns, now_ns)

    def _served(self, demand: Demand) -> Answer:
        del self._sessions.queued[demand.session]
        start_ns = max(demand.ready_ns, self._free_ns, self._held_ns)
        self._free_ns = start_ns + demand.work_ns
        return Answer(demand.session, demand.sequence, start_ns, Piece(start_ns, self._free_ns, demand.work_ns))
