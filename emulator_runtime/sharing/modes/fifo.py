"""Steps are served in the order in which they become ready (GPEmu, PVLDB 18(6), 2025, section 2.4)."""

from __future__ import annotations

from emulator_runtime.memory.rules import one_peak_at_a_time
from emulator_runtime.sharing.demands import Demand, Session
from emulator_runtime.sharing.modes.mode import Mode
from emulator_runtime.sharing.pick_next import Key, PickNext


class Fifo:
    """First ready, first served."""

    def key(self, _session: Session, demand: Demand, *, idle: bool) -> Key:
        return (demand.ready_ns,)

    def served(self, session: Session, demand: Demand, key: Key) -> None:
        """Nothing to remember."""

    def left(self, session: Session) -> None:
        """Nothing to forget."""


FIFO = Mode("fifo", "steps in the order in which they are ready", lambda: PickNext(Fifo()), one_peak_at_a_time)
