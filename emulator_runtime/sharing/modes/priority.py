"""The ready step of the session with the highest priority goes first; a step isn't interrupted."""

from __future__ import annotations

from emulator_runtime.memory.rules import one_peak_at_a_time
from emulator_runtime.sharing.demands import Demand, Session
from emulator_runtime.sharing.modes.fifo import Fifo
from emulator_runtime.sharing.modes.mode import Mode
from emulator_runtime.sharing.pick_next import Key, PickNext


class ByPriority(Fifo):
    """Highest priority first."""

    def key(self, session: Session, _demand: Demand, *, idle: bool) -> Key:
        return (-session.priority,)


PRIORITY = Mode("priority", "steps of the highest priority first", lambda: PickNext(ByPriority()), one_peak_at_a_time)
