"""The ranks of a distributed training job and what they agree on: where to begin, when a step has ended, when to stop.

A step is counted when all ranks have done it. A rank that is gone ends the others, because a step without it never ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Start:
    """What all ranks begin with: the first step (the least progress of any rank) and the number of GPUs of all ranks."""

    first: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Crossing:
    """How the ranks left a barrier: when the last of them had ended its step (in the own clock), and who wants to stop."""

    end_ns: int
    stop: str = ""


class Group(Protocol):
    """This process among the ranks of its job. Each call raises ClusterError where a rank is gone or doesn't answer."""

    nodes: int
    rank: int

    def join(self, progress: int, gpus: int) -> Start:
        """Wait until all ranks are there, and agree."""
        ...

    def barrier(self, steps_done: int, end_ns: int, *, stop: bool) -> Crossing:
        """Wait until all ranks have done `steps_done` steps; the own device was done with the last one at `end_ns`."""
        ...

    def check(self) -> None:
        """Has a rank gone meanwhile? Doesn't wait; for use in the middle of long steps."""
        ...

    def farewell(self) -> None:
        """Wait until all ranks have noted their last step."""
        ...

    def leave(self, reason: str) -> None:
        """Tell the other ranks why this one ends before the last step; closes the group."""
        ...

    def close(self) -> None: ...


class Alone:
    """A job of one rank."""

    nodes = 1
    rank = 0

    def join(self, progress: int, gpus: int) -> Start:
        return Start(progress, gpus)

    def barrier(self, steps_done: int, end_ns: int, *, stop: bool) -> Crossing:
        return Crossing(end_ns, "this process" if stop else "")

    def check(self) -> None:
        """Nobody else can be gone."""

    def farewell(self) -> None:
        """Nobody else needs to know."""

    def leave(self, reason: str) -> None:
        """Nobody else needs to know."""

    def close(self) -> None:
        """Nothing is open."""
