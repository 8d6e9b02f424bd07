"""The ranks of a distributed training job, and how they agree on the first step, the end of each step, and a stop.

A step is done when all ranks have done it. If one rank fails, the others end, because no step could end without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

THIS_PROCESS = "this process"


@dataclass(frozen=True, slots=True)
class Start:
    """What all ranks begin with: the job's progress, in steps or samples (the least of all ranks), and all GPUs."""

    first: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Crossing:
    """The result of a barrier: when the last rank ended its step (in this host's clock), and which rank wants to stop."""

    end_ns: int
    stop: str = ""


class Group(Protocol):
    """This process as one rank of its job. All methods raise ClusterError if another rank fails or doesn't answer."""

    nodes: int
    rank: int

    def join(self, progress: int, gpus: int, secret: str = "") -> Start:
        """Wait until all ranks have joined, and agree on the start. `secret`: what only the job's ranks know; "": anybody may be
        a rank."""
        ...

    def barrier(self, steps_done: int, end_ns: int, *, stop: bool) -> Crossing:
        """Wait until all ranks have done `steps_done` steps. This rank's device ended the last one at `end_ns`."""
        ...

    def check(self) -> None:
        """Check that all ranks are connected, without waiting; for use during long steps."""
        ...

    def farewell(self) -> None:
        """Wait until all ranks have recorded their last step."""
        ...

    def leave(self, reason: str) -> None:
        """Tell the other ranks why this one ends before the last step, and close the group."""
        ...

    def close(self) -> None: ...


class Alone:
    """A job with a single rank."""

    nodes = 1
    rank = 0

    def join(self, progress: int, gpus: int, secret: str = "") -> Start:
        return Start(progress, gpus)

    def barrier(self, steps_done: int, end_ns: int, *, stop: bool) -> Crossing:
        return Crossing(end_ns, THIS_PROCESS if stop else "")

    def check(self) -> None:
        """Does nothing: there are no other ranks."""

    def farewell(self) -> None:
        """Does nothing: there are no other ranks."""

    def leave(self, reason: str) -> None:
        """Does nothing: there are no other ranks."""

    def close(self) -> None:
        """Does nothing: there is no connection."""
