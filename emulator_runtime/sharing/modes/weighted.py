"""Device time in proportion to weights, by start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996).

A demand's start tag is the end tag of its session's preceding demand, or, if the session had paused, the virtual time: the
start tag of what is being served. Its end tag is its start tag plus work / weight. The lowest start tag is served first, so a
session can't save up time while it doesn't use the device.
"""

from __future__ import annotations

from emulator_runtime.memory.rules import one_peak_at_a_time
from emulator_runtime.sharing.demands import Demand, Session
from emulator_runtime.sharing.modes.mode import Mode
from emulator_runtime.sharing.pick_next import Key, PickNext


class StartTimeFair:
    """Tags are exact while weights divide work; otherwise they are floats."""

    def __init__(self) -> None:
        self._virtual = self._largest_end = 0.0
        self._ends: dict[str, float] = {}

    def key(self, session: Session, _demand: Demand, *, idle: bool) -> Key:
        now = self._largest_end if idle else self._virtual
        return (max(now, self._ends.get(session.name, 0.0)),)

    def served(self, session: Session, demand: Demand, key: Key) -> None:
        self._virtual = key[0]
        end = self._ends[session.name] = key[0] + demand.work_ns / self.weight(session)
        self._largest_end = max(self._largest_end, end)

    def weight(self, session: Session) -> int:
        return session.weight

    def left(self, session: Session) -> None:
        """The tag stays while it is ahead of the virtual time: leaving and joining again must not be a way to the front."""
        self._ends = {name: end for name, end in self._ends.items() if end > self._virtual}


WEIGHTED = Mode(
    "weighted",
    "device time in proportion to weights",
    lambda: PickNext(StartTimeFair()),
    one_peak_at_a_time,
    share="weight",
)
