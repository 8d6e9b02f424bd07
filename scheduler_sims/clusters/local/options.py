"""How a local cluster runs: its clock and its processes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """How time passes and how many processes wait for work.

    `speed`: emulated seconds per host second. `warp`: time jumps over waiting; `speed` holds between the jumps then.
    `standby`: how many job processes are started before their job starts; the processes of further jobs start with their jobs.
    `realtime`: job processes ask for SCHED_FIFO, so that other work on this machine doesn't delay them. `profiles`: a file
    with profiles of the user's own.
    """

    speed: float = 1.0
    warp: bool = False
    standby: int = 200
    profiles: str = ""
    realtime: bool = False
