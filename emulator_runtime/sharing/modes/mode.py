"""What makes a way to share a device: its engine and its memory rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from emulator_runtime.sharing.demands import Engine
from emulator_runtime.sharing.memory import MemoryRule


@dataclass(frozen=True, slots=True)
class Mode:
    """`engine` makes one for a device. `shared`: several sessions may use the device. `summary`: a line for lists of modes."""

    name: str
    summary: str
    engine: Callable[[], Engine]
    memory: MemoryRule
    shared: bool = True
