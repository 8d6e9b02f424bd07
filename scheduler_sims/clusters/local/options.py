"""How a local cluster runs: its clock and its processes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """`speed`: emulated seconds per host second. `warp`: jump over waiting instead. `standby`: how many job processes are
    started ahead of their start (each takes about 15 MB); more jobs than that start their process when they start.
    `realtime`: job processes ask for SCHED_FIFO, so that other work on this machine doesn't delay them. `profiles`: a file
    of the user's own."""

    speed: float = 1.0
    warp: bool = False
    standby: int = 200
    profiles: str = ""
    realtime: bool = False
