"""A cluster in virtual time: discrete events, exact arithmetic, no host clock. Its answer is the predicted JCT.

One total order of events (`Event.order`): time, then what happened, then the job's row; the order of insertion never
matters. Within one instant the loop acts first on what it knew beforehand (submissions, wakes, the effect of a plan), then
steps are issued, then the loop hears of what happened: so a stop that follows an event of this instant comes after the
steps of this instant, any other stop before them. This is what happens where messages take a moment.
Jobs run on devices of their own; a plan that shares a device is refused.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from emulator_runtime.domain.errors import PolicyError
from emulator_runtime.domain.job import JobSpec
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.domain.units import to_ns
from scheduler_sims.clusters.base import Event, Happening, Start
from scheduler_sims.inputs.truth import WorkloadTruth
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.interface.plan import WHOLE_DEVICE_MILLI
from scheduler_sims.record import LagAccount


@dataclass(slots=True)
class _Run:
    """One uninterrupted run of a job; `number` tells a stale event from a valid one."""

    job: JobSpec
    times: StepTimes
    first: int
    begin_ns: int
    number: int
    last: int
    """No step beyond this one is run (a stop lowers it)."""


class SimulatedCluster:
    """Discrete events over StepTimes; costs are charged as ClusterCosts says."""

    name = "simulated"

    def __init__(self, truth: WorkloadTruth, costs: ClusterCosts) -> None:
        self._truth = truth
        self._costs = costs
        self._now_ns = 0
        self._heap: list[tuple[tuple[int, int, int], int, Event]] = []
        self._runs: dict[str, _Run] = {}
        self._numbers = 0
        self._seen_now = False  # whether the loop has heard of something that happened at this instant

    def prepare(self, jobs: Sequence[JobSpec]) -> None:
        pass

    def now_ns(self) -> int:
        return self._now_ns

    def wait(self, until_ns: int | None) -> list[Event]:
        events: list[Event] = []
        while self._heap and (until_ns is None or self._heap[0][2].at_ns <= until_ns):
            if events and self._heap[0][2].at_ns > events[0].at_ns:
                break
            _, number, event = heapq.heappop(self._heap)
            if self._valid(number, event):
                events.append(event)
        at_ns = events[0].at_ns if events else until_ns
        if at_ns is not None and at_ns > self._now_ns:
            self._now_ns, self._seen_now = at_ns, False
        self._seen_now |= any(event.what is not Happening.STARTED for event in events)
        return events

    def start(self, start: Start) -> None:
        if any(share.milli != WHOLE_DEVICE_MILLI for task in start.allocation.tasks for share in task.shares):
            raise PolicyError(
                f"job {start.job.job_id!r}: the simulated cluster runs whole devices only, the plan shares one"
            )
        self._numbers += 1
        times = self._truth.step_times(start.job, start.allocation)
        run = _Run(start.job, times, start.steps_done, start.begin_ns(self._costs), self._numbers, times.steps)
        self._runs[start.job.job_id] = run
        self._push(run, start.at_ns, Happening.STARTED, run.first)
        end_ns = run.begin_ns + times.end_ns(run.first, times.steps - run.first)
        self._push(run, end_ns, Happening.FINISHED, times.steps)

    def stop(self, job_id: str) -> None:
        run = self._runs.get(job_id)
        if run is None:
            return
        count = run.times.steps_issued(run.first, self._now_ns - run.begin_ns - (not self._seen_now))
        if run.first + count == run.times.steps:
            return  # the current step is the last one: the job finishes
        self._numbers += 1
        run.number = self._numbers  # forgets the planned finish
        run.last = run.first + count
        free_ns = run.begin_ns + run.times.issue_ns(run.first, count) + to_ns(self._costs.release_s())
        self._push(run, free_ns, Happening.STOPPED, run.first + count)

    def steps_done(self, job_id: str) -> int:
        run = self._runs[job_id]
        elapsed = self._now_ns - run.begin_ns
        done = run.times.steps_done(run.first, elapsed) if elapsed > 0 else 0
        return min(run.first + done, run.last)

    def settle(self) -> None:
        pass

    def lag(self) -> dict[str, LagAccount]:
        return {}

    def notes(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        self._heap.clear()
        self._runs.clear()

    def _push(self, run: _Run, at_ns: int, what: Happening, steps_done: int) -> None:
        event = Event(at_ns, what, run.job.job_id, run.job.row, steps_done)
        heapq.heappush(self._heap, (event.order, run.number, event))

    def _valid(self, number: int, event: Event) -> bool:
        run = self._runs.get(event.job_id)
        if run is None or run.number != number:
            return False
        if event.what is not Happening.STARTED:
            del self._runs[event.job_id]
        return True
