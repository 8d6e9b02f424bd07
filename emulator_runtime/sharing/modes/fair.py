"""Equal device time, switching only between iterations (Salus, MLSys 2020, section 3.2)."""

from __future__ import annotations

from emulator_runtime.memory.rules import one_peak_at_a_time
from emulator_runtime.sharing.demands import Session
from emulator_runtime.sharing.modes.mode import Mode
from emulator_runtime.sharing.modes.weighted import StartTimeFair
from emulator_runtime.sharing.pick_next import PickNext


class IterationFair(StartTimeFair):
    """All weights count as 1."""

    def weight(self, session: Session) -> int:
        return 1


FAIR = Mode(
    "fair", "equal device time, switching between iterations", lambda: PickNext(IterationFair()), one_peak_at_a_time
)
