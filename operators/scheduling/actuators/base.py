"""How a scheduler's decisions reach a job's pods; each actuator is a file, the choice is the table in __init__."""

from __future__ import annotations

from typing import Protocol

from operators.scheduling.job_state import State
from operators.scheduling.objects import Mine
from operators.scheduling.writer import Wanted, Writer


class Actuator(Protocol):
    """One way to start and stop. `mine` is as new as is known; what turns out to be older ends in a ConflictError."""

    one_size: bool
    """Whether the GPUs of a pod are as it was made: then only configurations with as many can run."""

    def look(self, mine: Mine) -> State:
        """What a job looks like that is there and goes on: idle, held, running or leaving."""
        ...

    async def start(self, writer: Writer, mine: Mine, wanted: Wanted) -> None:
        """Let an idle job's pods run there, all of them or none. Raises what Writer raises."""
        ...

    async def stop(self, writer: Writer, mine: Mine) -> None:
        """Let its pods end; it is over when the job is idle again. Raises what Writer raises."""
        ...
