"""When the result of a running job is computed again: often enough for a scheduler that reads its steps, seldom enough for the
API server.

Each computation may cause a write of an EmuJob's status. Beginnings and ends aren't paced: they are handled at once.
"""

from __future__ import annotations

PERIOD_NS = 4_000_000_000
"""Interval between two computations for one job, unless many jobs run: with the shipping of the event, 5 s at most."""
PER_SECOND = 20
"""Maximum number of computations a second for all jobs together."""


class Pace:
    """Jobs with new events, by the time of their last computation. All times are nanoseconds of one clock."""

    def __init__(self, period_ns: int = PERIOD_NS, per_second: int = PER_SECOND) -> None:
        self._period_ns, self._per_second = period_ns, per_second
        self._waiting: dict[str, int] = {}
        self._allowed, self._since_ns = float(per_second), 0

    def add(self, uid: str, looked_ns: int) -> None:
        """The job has new events since its last computation at `looked_ns`."""
        self._waiting.setdefault(uid, looked_ns)

    def drop(self, uid: str) -> None:
        """The job's result was computed for another reason, or the job is gone."""
        self._waiting.pop(uid, None)

    def due(self, now_ns: int) -> list[str]:
        """Takes the jobs that are due, those that have waited longest first."""
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
