"""Jobs and Services that the API server refuses to make: the EmuJob's status says why, and they are asked for ever less often.

A quota may have room later, an admission's rule may change; a mistake in a template stays one, and must not fill the log.
"""

from __future__ import annotations

from dataclasses import dataclass

from operators.kube.informer import Pauses

LASTS = 2
"""What fails so often, one time after the other, isn't healed by the next attempt."""
_SLOWER = 3
"""From then on the pauses are those after so many failures more."""


@dataclass(frozen=True, slots=True)
class RefusedCreation:
    """`problem`: the last answer, empty while it may pass at once. `left_s`: how long not to ask again."""

    problem: str
    left_s: float


@dataclass(slots=True)
class _Series:
    uid: str
    problem: str
    times: int
    until_s: float


class CreationAttempts:
    """By EmuJob: its name, and its uid, as another one may have the name later. Times are those of one clock, in seconds."""

    def __init__(self, pauses: Pauses) -> None:
        self._pauses = pauses
        self._known: dict[str, _Series] = {}

    def note(self, job: str, uid: str, problem: str, now_s: float) -> bool:
        """It was refused now. Whether this is another problem than the one before."""
        before = self._known.get(job)
        times = before.times + 1 if before is not None and before.uid == uid else 1
        pause_s = self._pauses.after(times if times < LASTS else times + _SLOWER)
        self._known[job] = _Series(uid, problem, times, now_s + pause_s)
        return times == 1 or before is None or before.problem != problem

    def of(self, job: str, uid: str, now_s: float) -> RefusedCreation | None:
        """None: nothing was refused, or it came through since."""
        found = self._known.get(job)
        if found is None or found.uid != uid:
            return None
        return RefusedCreation(found.problem if found.times >= LASTS else "", max(0.0, found.until_s - now_s))

    def forget(self, job: str) -> None:
        """It was made, or nobody wants it any more."""
        self._known.pop(job, None)
