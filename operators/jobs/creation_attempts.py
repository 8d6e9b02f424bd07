"""Jobs and Services that the API server refuses to create: the EmuJob's status shows why, and attempts become ever rarer.

A quota may have room later and an admission rule may change; a mistake in a template stays one and must not fill the log.
"""

from __future__ import annotations

from dataclasses import dataclass

from operators.controllers.loop import LASTING
from operators.kube.informer import Pauses

_SLOWER = 3
"""From then on the pauses are those after this many more failures."""


@dataclass(frozen=True, slots=True)
class RefusedCreation:
    """`problem`: the last answer, empty if the next attempt may succeed. `left_s`: time until the next attempt."""

    problem: str
    left_s: float


@dataclass(slots=True)
class _Series:
    uid: str
    problem: str
    times: int
    until_s: float


class CreationAttempts:
    """By EmuJob: its name, and its uid, because another one may have the name later. Times are seconds of one clock."""

    def __init__(self, pauses: Pauses) -> None:
        self._pauses = pauses
        self._known: dict[str, _Series] = {}

    def note(self, job: str, uid: str, problem: str, now_s: float) -> bool:
        """The API server has refused; returns whether the problem differs from the previous one."""
        before = self._known.get(job)
        times = before.times + 1 if before is not None and before.uid == uid else 1
        pause_s = self._pauses.after(times if times < LASTING else times + _SLOWER)
        self._known[job] = _Series(uid, problem, times, now_s + pause_s)
        return times == 1 or before is None or before.problem != problem

    def of(self, job: str, uid: str, now_s: float) -> RefusedCreation | None:
        """None: nothing was refused, or a later attempt succeeded."""
        found = self._known.get(job)
        if found is None or found.uid != uid:
            return None
        return RefusedCreation(found.problem if found.times >= LASTING else "", max(0.0, found.until_s - now_s))

    def forget(self, job: str) -> None:
        """The object was created, or isn't wanted any more."""
        self._known.pop(job, None)
