"""A grant: the right of one job to a set of devices of this node, named by a token."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from emulator_runtime.domain.lease import Lease


class GrantState(StrEnum):
    """The life of a grant. The last three are its end; an ended grant holds nothing."""

    GRANTED = "granted"
    ATTACHED = "attached"
    RELEASED = "released"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(slots=True)
class Grant:
    """What the manager promised to a job, and how far the job has come. Times are emulated nanoseconds.

    `floor_ns`: no lease starts before it (the grant's own time, then the end of the last lease). `last_step` and
    `last_lease` make a repeated request give the same answer.
    """

    token: str
    job_id: str
    devices: tuple[str, ...]
    steps_done: int
    floor_ns: int
    state: GrantState = GrantState.GRANTED
    stopping: bool = False
    last_step: int = -1
    last_lease: Lease | None = None
    leased_ns: int = 0
    logged_steps: int = field(default=0)
    """Steps that the event log knows of; the difference is written as one range."""

    @property
    def live(self) -> bool:
        return self.state in (GrantState.GRANTED, GrantState.ATTACHED)
