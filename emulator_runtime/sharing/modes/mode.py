"""What makes a way to share a device: its engine and its memory rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from emulator_runtime.memory.rules import MemoryRule
from emulator_runtime.sharing.demands import WHOLE_MILLI, Engine, Session, Terms


@dataclass(frozen=True, slots=True)
class Mode:
    """`engine` makes one for a device. `shared`: several sessions may use the device. `summary`: a line for lists of modes.

    `share`: what a session's share of the device (thousandths) means: its weight, the most that it uses, or nothing.
    """

    name: str
    summary: str
    engine: Callable[[], Engine]
    memory: MemoryRule
    shared: bool = True
    share: Literal["", "weight", "cap"] = ""

    def session(self, name: str, terms: Terms) -> Session:
        """A session on these terms."""
        weight = terms.milli if self.share == "weight" else 1
        cap_milli = terms.milli if self.share == "cap" else WHOLE_MILLI
        return Session(name, terms.row, terms.rank, weight, terms.priority, cap_milli)
