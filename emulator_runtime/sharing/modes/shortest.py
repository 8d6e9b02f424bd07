"""The ready step of the job with the least remaining work goes first; a step isn't interrupted."""

from __future__ import annotations

from emulator_runtime.memory.rules import one_peak_at_a_time
from emulator_runtime.sharing.demands import Demand, Session
from emulator_runtime.sharing.modes.fifo import Fifo
from emulator_runtime.sharing.modes.mode import Mode
from emulator_runtime.sharing.pick_next import Key, PickNext


class ByRemainingWork(Fifo):
    """Least remaining work first."""

    def key(self, _session: Session, demand: Demand, *, idle: bool) -> Key:
        return (demand.remaining_ns,)


SHORTEST = Mode(
    "srtf", "steps of the job with the least work left first", lambda: PickNext(ByRemainingWork()), one_peak_at_a_time
)
