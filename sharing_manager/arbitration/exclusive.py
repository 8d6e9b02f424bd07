"""One holder per device: the mode of a GPU that isn't shared."""

from __future__ import annotations

from collections.abc import Collection

from emulator_runtime.domain.errors import RefusedError
from sharing_manager.arbitration.fifo import Fifo


class Exclusive(Fifo):
    """First in, first out, limited to one holder."""

    def check(self, holder: str, leaving: Collection[str] = ()) -> None:
        others = self.holders.difference({holder}, leaving)
        if others:
            raise RefusedError(
                f"it is exclusive and {', '.join(sorted(others))} holds it; wait until that ends, or share the device"
            )

    def admit(self, holder: str) -> None:
        self.check(holder)
        super().admit(holder)
