"""What a scheduler remembers of one job while it is there: what no object shows, such as what the loop was told of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from emulator_runtime.domain.job import JobSpec
from emulator_runtime.domain.step import StepTimes
from operators.scheduling.transitions import Known
from scheduler_sims.interface.plan import Allocation


@dataclass(slots=True)
class Pace:
    """So many steps were done at `at_ns` (emulated), and from then on it goes by `times`."""

    steps: int
    at_ns: int
    times: StepTimes

    def steps_at(self, now_ns: int) -> int:
        """Steps that should be done; the last one only counts when its end is told."""
        done = self.times.steps_done(self.steps, now_ns - self.at_ns) if now_ns > self.at_ns else 0
        return min(self.steps + done, max(self.steps, self.times.steps - 1))


@dataclass(slots=True)
class TrackedJob:
    """`uid` and `key` (namespace/name) of the EmuJob. `allocation`: what it has by the loop's last word.

    `writing`: a start is on its way, so what is seen meanwhile means nothing. `told_steps`: as the loop knows them.
    `since_ns`: when its newest run was started. `problem`: why the loop doesn't know it.
    """

    uid: str
    key: str
    job_id: str
    row: int
    known: Known = Known.NOTHING
    spec: JobSpec | None = None
    allocation: Allocation | None = None
    pace: Pace | None = None
    told_steps: int = 0
    since_ns: int = -(2**62)
    writing: bool = False
    enforcing: asyncio.Task[None] | None = None
    problem: str = ""
