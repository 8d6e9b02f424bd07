"""When a running job is looked at again: often enough for a scheduler that counts its steps, seldom enough for the API server.

Each look may become a write of an EmuJob's status. What ends or begins isn't paced: that is looked at at once.
"""

from __future__ import annotations

PERIOD_NS = 4_000_000_000
"""Between two looks at one job, if not too many run: with what an event needs to come here, 5 s at most."""
PER_SECOND = 20
"""Looks at all jobs together."""


class Pace:
    """Jobs that have news, by the time of the last look at them. All times are one clock's nanoseconds."""

    def __init__(self, period_ns: int = PERIOD_NS, per_second: int = PER_SECOND) -> None:
        self._period_ns, self._per_second = period_ns, per_second
        self._waiting: dict[str, int] = {}
        self._allowed, self._since_ns = float(per_second), 0

    def add(self, uid: str, looked_ns: int) -> None:
        """It has news since `looked_ns`, when it was looked at last."""
        self._waiting.setdefault(uid, looked_ns)

    def drop(self, uid: str) -> None:
        """It was looked at for another reason, or is gone."""
        self._waiting.pop(uid, None)

    def due(self, now_ns: int) -> list[str]:
        """Whose turn it is: who has waited longest comes first. They have no news any more."""
        gained = (now_ns - self._since_ns) * self._per_second / 1e9
        self._allowed, self._since_ns = min(float(self._per_second), self._allowed + max(0.0, gained)), now_ns
        ripe = sorted((at_ns, uid) for uid, at_ns in self._waiting.items() if now_ns - at_ns >= self._period_ns)
        taken = [uid for _, uid in ripe[: int(self._allowed)]]
        self._allowed -= len(taken)
        for uid in taken:
            del self._waiting[uid]
        return taken

    def __bool__(self) -> bool:
        return bool(self._waiting)
