"""Runs on what several jobs share, in virtual time, step by step: each step demands the time of every device that it needs, and
of the storage, network and links of its nodes.

A run issues a step when the one before has ended and its input is ready, and queues it with the devices as soon as that time
is known, as a training loop does (workloads/step_loop.py). The input of the next step begins then. The devices' part of a step
ends when all its devices have served it, the step when its nodes have exchanged what they computed. Engines
(emulator_runtime.sharing) decide who is served when; runs that share nothing need none of this (simulated.py).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from emulator_runtime.domain.stages import HostResource, Stage, StageRun
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.sharing.demands import Demand, Engine, Session, Terms
from emulator_runtime.sharing.host_resources import engine_of
from emulator_runtime.sharing.modes import EXCLUSIVE, MODES
from scheduler_sims.clusters.base import Start

_Key = tuple[str, str]
"""Of an engine: the node, and the name of one of its resources; for a device "", and its UUID."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The last step of a run ends at `at_ns`; `steps_done` over all runs of the job."""

    job_id: str
    at_ns: int
    steps_done: int


@dataclass(frozen=True, slots=True)
class _Task:
    """The part of a run on one node. `session`: its name on the node's resources."""

    node: str
    session: str
    devices: tuple[str, ...]
    resources: tuple[HostResource, ...]


@dataclass(slots=True)
class _SharedRun:
    """`next`: the step that its devices are asked for; `issue_ns`: when it is issued, if that is known. `ended_ns`: when the one
    before it ends."""

    job_id: str
    times: StepTimes
    tasks: Sequence[_Task]
    sessions: Mapping[_Key, str]
    """The name of its session with each engine."""
    next: int
    ended_ns: int
    last: int
    """The step before which it ends: all are done, or a stop was requested."""
    devices: tuple[_Key, ...]
    issue_ns: int | None = None
    unanswered: set[_Key] = field(default_factory=set)
    end_ns: int = 0
    """The latest end of the pieces of the present step."""
    input_ns: int = 0
    """When the input of the step after the last one that was issued is ready, where it has no stages."""
    inputs: list[StageRun] = field(default_factory=list)
    """The stages of that input, by task."""
    exchanges: list[StageRun] = field(default_factory=list)
    """Of the present step, by task; empty while its devices serve it."""


class SharedRuns:
    """All runs of a cluster that share something. `resources`: of each node, what its jobs share beside devices."""

    def __init__(self, resources: Mapping[str, tuple[HostResource, ...]] | None = None) -> None:
        self._resources = resources or {}
        self._engines: dict[_Key, Engine] = {}
        self._runs: dict[str, _SharedRun] = {}
        self._jobs: dict[str, str] = {}
        """The job of each session."""
        self._due: list[tuple[int, _Key]] = []
        """When each engine decides next; an entry may be outdated."""

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._runs

    def begin(self, start: Start, times: StepTimes, begin_ns: int, modes: Mapping[str, str]) -> None:
        """Begins a run whose first step may be prepared from `begin_ns` on. `modes`: of its devices that are shared, by UUID."""
        job_id, tasks, sessions = start.job.job_id, [], {}
        for rank, placement in enumerate(start.allocation.tasks):
            name, devices = f"{job_id}/{rank}", []
            for share in placement.shares:
                assert share.device is not None
                mode = MODES[modes.get(share.device, EXCLUSIVE.name)]
                session = mode.session(name, Terms(start.job.row, rank, share.milli, share.priority))
                self._engines.setdefault(("", share.device), mode.engine()).join(session)
                sessions["", share.device] = name
                devices.append(share.device)
            resources = self._resources.get(placement.node, ())
            for resource in resources:
                key = placement.node, resource.name
                if key not in self._engines:
                    self._engines[key] = engine_of(resource)
                self._engines[key].join(Session(name, start.job.row, rank))
                sessions[key] = name
            tasks.append(_Task(placement.node, name, tuple(devices), resources))
            self._jobs[name] = job_id
        keys = tuple(("", uuid) for task in tasks for uuid in task.devices)
        run = _SharedRun(job_id, times, tasks, sessions, start.steps_done, 0, times.steps, keys)
        self._runs[job_id] = run
        self._prepare(run, run.next, begin_ns)
        self._issue_if_prepared(run)

    def next_ns(self) -> int | None:
        """When an engine decides next."""
        while self._due:
            due_ns, key = self._due[0]
            if self._engines[key].next_ns() == due_ns:
                return due_ns
            heapq.heappop(self._due)
        return None

    def decide(self) -> list[RunEnd]:
        """The decisions of the engine that is due next; the ends of runs that are known by them."""
        due_ns, key = self._due[0]
        ends: list[RunEnd] = []
        for answer in self._engines[key].advance(due_ns):
            run = self._runs[self._jobs[answer.session]]
            if key[0]:
                ends += self._staged(run, key, answer.piece.end_ns)
            else:
                run.unanswered.discard(key)
                run.end_ns = max(run.end_ns, answer.piece.end_ns)
                if not run.unanswered:
                    ends += self._served(run)
        self._touch(key)
        return ends

    def stop(self, job_id: str, now_ns: int) -> RunEnd | None:
        """Ends a run before its next step; a step that has begun is finished. None: `decide` will return the end."""
        run = self._runs[job_id]
        if run.last <= run.next:
            return None
        if run.issue_ns is None:  # the end of the step before isn't known, or the input of this one
            run.last = run.next
            return None
        if run.end_ns or not self._withdrawn(run, now_ns):
            run.last = run.next + 1
            return None
        run.last = run.next
        run.unanswered.clear()
        return RunEnd(job_id, max(now_ns, run.issue_ns), run.next)

    def resize(self, job_id: str, times: StepTimes, now_ns: int) -> None:
        """Gives the steps that aren't issued yet another speed."""
        run = self._runs[job_id]
        run.times = times
        if run.issue_ns is not None and run.issue_ns > now_ns and run.last > run.next and self._withdrawn(run, now_ns):
            self._issue(run, run.issue_ns)

    def steps_done(self, job_id: str, now_ns: int) -> int:
        run = self._runs[job_id]
        return run.next if run.ended_ns <= now_ns else max(0, run.next - 1)

    def leave(self, job_id: str, now_ns: int) -> None:
        """The run has ended and its devices are free."""
        run = self._runs.pop(job_id)
        for key, name in run.sessions.items():
            self._engines[key].leave(name, now_ns)
            self._touch(key)
            self._jobs.pop(name, None)

    def _served(self, run: _SharedRun) -> list[RunEnd]:
        """All devices have served the present step, or will."""
        stages = run.times.stages
        if stages:
            exchanges = ((task, stages.exchange(task.resources)) for task in run.tasks)
            run.exchanges = self._begin_stages(run.next, run.end_ns, exchanges)
        return self._ended(run)

    def _staged(self, run: _SharedRun, key: _Key, end_ns: int) -> list[RunEnd]:
        """A resource of a node has served the input of a step, or an exchange."""
        for stages in (run.inputs, run.exchanges):
            for task, stage_run in zip(run.tasks, stages, strict=False):
                if task.node == key[0] and stage_run.served(key[1], end_ns):
                    self._demand_stage(task, stage_run)
        return self._ended(run) if run.exchanges else self._issue_if_prepared(run)

    def _ended(self, run: _SharedRun) -> list[RunEnd]:
        """The present step has ended if all nodes have exchanged."""
        end_ns = _end_ns(run.exchanges, run.end_ns)
        if end_ns is None:
            return []
        run.next += 1
        run.ended_ns, run.end_ns, run.issue_ns = end_ns, 0, None
        run.exchanges.clear()
        if run.next >= run.times.steps:
            return [RunEnd(run.job_id, run.ended_ns, run.next)]
        return self._issue_if_prepared(run)

    def _issue_if_prepared(self, run: _SharedRun) -> list[RunEnd]:
        """Issues the next step, or ends the run, if the step before has ended and the input is ready on all nodes."""
        if run.issue_ns is not None or (input_ns := _end_ns(run.inputs, run.input_ns)) is None:
            return []
        issue_ns = run.times.next_issue_ns(run.ended_ns, input_ns)
        if run.next >= run.last:
            run.issue_ns = issue_ns
            return [RunEnd(run.job_id, issue_ns, run.next)]
        self._issue(run, issue_ns)
        return []

    def _withdrawn(self, run: _SharedRun, now_ns: int) -> bool:
        """Takes back the present step, unless a device has begun it. If it isn't issued yet, neither is the input begun that is
        prepared meanwhile."""
        if not all(self._engines[key].waits(run.sessions[key]) for key in run.devices):
            return False
        keys = list(run.devices)
        if run.inputs and run.issue_ns is not None and run.issue_ns >= now_ns:
            stages = zip(run.tasks, run.inputs, strict=True)
            keys += [(task.node, name) for task, inputs in stages for name in inputs.outstanding]
        for key in keys:
            if self._engines[key].waits(run.sessions[key]):
                self._engines[key].withdraw(run.sessions[key])
                self._touch(key)
        return True

    def _issue(self, run: _SharedRun, issue_ns: int) -> None:
        run.issue_ns = issue_ns
        work_ns, left_ns = run.times.device_ns(run.next), run.times.remaining_ns(run.next)
        run.unanswered = set(run.devices)
        for key in run.devices:
            self._demand(key, Demand(run.sessions[key], run.next, issue_ns, work_ns, remaining_ns=left_ns))
        if run.next + 1 < run.times.steps:
            self._prepare(run, run.next + 1, issue_ns)

    def _prepare(self, run: _SharedRun, step: int, ready_ns: int) -> None:
        """Begins the input of a step on all nodes."""
        stages, cpus_ns = run.times.stages, run.times.input_ns
        run.input_ns = ready_ns + cpus_ns
        if stages:
            inputs = ((task, stages.input(cpus_ns, task.resources, task.devices)) for task in run.tasks)
            run.inputs = self._begin_stages(step, ready_ns, inputs)

    def _begin_stages(self, step: int, ready_ns: int, stages: Iterable[tuple[_Task, list[Stage]]]) -> list[StageRun]:
        begun = []
        for task, each in stages:
            begun.append(StageRun(step, each, ready_ns))
            self._demand_stage(task, begun[-1])
        return begun

    def _demand_stage(self, task: _Task, run: StageRun) -> None:
        for name, work_ns in run.outstanding.items():
            self._demand((task.node, name), Demand(task.session, run.step, run.ready_ns, work_ns))

    def _demand(self, key: _Key, demand: Demand) -> None:
        self._engines[key].submit(demand)
        self._touch(key)

    def _touch(self, key: _Key) -> None:
        due_ns = self._engines[key].next_ns()
        if due_ns is not None:
            heapq.heappush(self._due, (due_ns, key))


def _end_ns(runs: Sequence[StageRun], otherwise_ns: int) -> int | None:
    """When all these stages end, or if there are none; None: that isn't known yet."""
    if not runs:
        return otherwise_ns
    ends = [run.end_ns for run in runs]
    known = [end_ns for end_ns in ends if end_ns is not None]
    return max(known) if len(known) == len(ends) else None
