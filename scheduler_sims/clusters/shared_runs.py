"""Runs on shared devices in virtual time, step by step: each step demands the time of every device that it needs.

A run issues a step when the one before has ended and its input is ready, and queues it with the devices as soon as that time
is known, as a training loop does. A step ends when all its devices have served it. The devices' engines
(emulator_runtime.sharing) decide who is served when; runs on exclusive devices need none of this (simulated.py).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

from emulator_runtime.domain.step import StepTimes
from emulator_runtime.sharing.demands import Demand, Engine, Terms
from emulator_runtime.sharing.modes import MODES
from scheduler_sims.clusters.base import Start


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The last step of a run ends at `at_ns`; `steps_done` over all runs of the job."""

    job_id: str
    at_ns: int
    steps_done: int


@dataclass(slots=True)
class _SharedRun:
    """`next`: the step that its devices were asked for last, `issue_ns`: when it is issued. `ended_ns`: when the one before it
    ends."""

    job_id: str
    times: StepTimes
    devices: Mapping[str, str]
    """The name of its session on each device."""
    next: int
    issue_ns: int
    ended_ns: int
    last: int
    """The step before which it ends: all are done, or a stop was requested."""
    unanswered: set[str] = field(default_factory=set)
    end_ns: int = 0
    """The latest end of the pieces of the present step."""


class SharedRuns:
    """All runs on shared devices of a cluster."""

    def __init__(self) -> None:
        self._engines: dict[str, Engine] = {}
        self._runs: dict[str, _SharedRun] = {}
        self._jobs: dict[str, str] = {}
        """The job of each session."""
        self._due: list[tuple[int, str]] = []
        """When each device decides next; an entry may be outdated."""

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._runs

    def begin(self, start: Start, times: StepTimes, begin_ns: int, modes: Mapping[str, str]) -> None:
        """Begins a run whose first step may be prepared from `begin_ns` on. `modes`: of its devices, by UUID."""
        job_id, names = start.job.job_id, {}
        for rank, task in enumerate(start.allocation.tasks):
            for share in task.shares:
                assert share.device is not None
                mode = MODES[modes[share.device]]
                terms = Terms(start.job.row, rank, share.milli, share.priority)
                session = mode.session(f"{job_id}/{rank}", terms)
                self._engines.setdefault(share.device, mode.engine()).join(session)
                names[share.device] = session.name
                self._jobs[session.name] = job_id
        issue_ns = times.first_issue_ns(begin_ns)
        found = self._runs[job_id] = _SharedRun(job_id, times, names, start.steps_done, issue_ns, 0, times.steps)
        self._issue(found)

    def next_ns(self) -> int | None:
        """When a device decides next."""
        while self._due:
            due_ns, uuid = self._due[0]
            if self._engines[uuid].next_ns() == due_ns:
                return due_ns
            heapq.heappop(self._due)
        return None

    def decide(self) -> list[RunEnd]:
        """The decisions of the device that is due next; the ends of runs that are known by them."""
        due_ns, uuid = self._due[0]
        ends: list[RunEnd] = []
        for answer in self._engines[uuid].advance(due_ns):
            run = self._runs[self._jobs[answer.session]]
            run.unanswered.discard(uuid)
            run.end_ns = max(run.end_ns, answer.piece.end_ns)
            if not run.unanswered:
                ends += self._served(run)
        self._touch(uuid)
        return ends

    def stop(self, job_id: str, now_ns: int) -> RunEnd | None:
        """Ends a run before its next step; a step that has begun is finished. None: `decide` will return the end."""
        run = self._runs[job_id]
        if run.last <= run.next:
            return None
        if run.end_ns or not self._withdrawn(run):
            run.last = run.next + 1
            return None
        run.last = run.next
        run.unanswered.clear()
        return RunEnd(job_id, max(now_ns, run.issue_ns), run.next)

    def resize(self, job_id: str, times: StepTimes, now_ns: int) -> None:
        """Gives the steps that aren't issued yet another speed."""
        run = self._runs[job_id]
        run.times = times
        if run.issue_ns > now_ns and run.last > run.next and self._withdrawn(run):
            self._issue(run)

    def steps_done(self, job_id: str, now_ns: int) -> int:
        run = self._runs[job_id]
        return run.next if run.ended_ns <= now_ns else max(0, run.next - 1)

    def leave(self, job_id: str, now_ns: int) -> None:
        """The run has ended and its devices are free."""
        run = self._runs.pop(job_id)
        for uuid, name in run.devices.items():
            self._engines[uuid].leave(name, now_ns)
            self._touch(uuid)
            self._jobs.pop(name, None)

    def _served(self, run: _SharedRun) -> list[RunEnd]:
        """All devices have served the present step, or will."""
        run.next += 1
        run.ended_ns, run.end_ns = run.end_ns, 0
        if run.next >= run.times.steps:
            return [RunEnd(run.job_id, run.ended_ns, run.next)]
        run.issue_ns = run.times.next_issue_ns(run.ended_ns, run.issue_ns)
        if run.next >= run.last:
            return [RunEnd(run.job_id, run.issue_ns, run.next)]
        self._issue(run)
        return []

    def _withdrawn(self, run: _SharedRun) -> bool:
        """Takes back the present step, unless a device has begun it."""
        if not all(self._engines[uuid].waits(name) for uuid, name in run.devices.items()):
            return False
        for uuid, name in run.devices.items():
            self._engines[uuid].withdraw(name)
            self._touch(uuid)
        return True

    def _issue(self, run: _SharedRun) -> None:
        work_ns, left_ns = run.times.device_ns(run.next), run.times.remaining_ns(run.next)
        run.unanswered = set(run.devices)
        for uuid, name in run.devices.items():
            self._engines[uuid].submit(Demand(name, run.next, run.issue_ns, work_ns, remaining_ns=left_ns))
            self._touch(uuid)

    def _touch(self, uuid: str) -> None:
        due_ns = self._engines[uuid].next_ns()
        if due_ns is not None:
            heapq.heappush(self._due, (due_ns, uuid))
