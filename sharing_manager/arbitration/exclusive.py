"""One holder per device: the mode of an ordinary, unshared GPU."""

from __future__ import annotations

from emulator_runtime.domain.errors import RefusedError
from sharing_manager.arbitration.fifo import Fifo


class Exclusive(Fifo):
    """First in, first out with room for one holder."""

    def admit(self, holder: str) -> None:
        others = self.holders - {holder}
        if others:
            raise RefusedError(f"the device is exclusive and {', '.join(sorted(others))} holds it")
        super().admit(holder)
