"""The asyncio half of the cluster: watches objects, passes changes to the loop as events, and carries out the loop's decisions.

Level-triggered: after each change of an object, the state of its whole job is read (see/job_state.py) and compared with the
job's phase in the loop (track/tracked_job.py); the difference gives the events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from emulator_runtime.domain.errors import EmuGpuError, InputError
from emulator_runtime.domain.job import JobSpec
from emulator_runtime.profiles.table import ProfileTable
from operators.kube.api import Api
from operators.kube.informer import Pauses, follow
from operators.kube.store import Store
from operators.objects.emujob import EmuJob
from operators.objects.names import ALLOCATION
from operators.scheduling.act.actuators import ACTUATORS, state_of
from operators.scheduling.act.enforcer import Enforcer
from operators.scheduling.act.writer import NotYetError, Writer
from operators.scheduling.complaints import Complaint, Kind
from operators.scheduling.remember.handover import AttainedService
from operators.scheduling.see.capacity import Capacity
from operators.scheduling.see.cluster_objects import ClusterObjects
from operators.scheduling.see.job_objects import JobObjects, submitted_at
from operators.scheduling.see.job_state import State
from operators.scheduling.track.batches import Batches
from operators.scheduling.track.job_reading import read_job
from operators.scheduling.track.loop_events import LoopEvents
from operators.scheduling.track.tracked_job import HOLDING, JobChange, LoopPhase, TrackedJob, transition
from operators.scheduling.track.tracked_jobs import Scope, TrackedJobs
from scheduler_sims.clusters.base import Event, Happening, Start
from scheduler_sims.clusters.open import NodesChanged
from scheduler_sims.inputs.fit import DoesNotFitError
from scheduler_sims.inputs.truth import OpenTruth
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.interface.plan import Allocation

_WITH_ALLOCATION = (LoopPhase.STARTING, LoopPhase.RUNNING, LoopPhase.STOPPING)
"""Phases in which the loop counts an allocation for the job."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """`deliver` passes events to the loop, `say` prints a message, `complain` reports a problem of a job."""

    profiles: ProfileTable
    costs: ClusterCosts
    truth: OpenTruth
    wall_ns: Callable[[], int]
    deliver: Callable[[list[Event]], None]
    say: Callable[[str], None]
    complain: Callable[[Complaint], None]
    may_act: Callable[[], bool]
    pauses: Pauses = field(default_factory=lambda: Pauses(settle=0.0))


class Watcher:
    """`run` must be cancelled. `synced` is set when all objects that existed at the start have been processed."""

    def __init__(
        self,
        api: Api,
        scope: Scope,
        dependencies: Dependencies,
        epoch_ns: int,
        attained: Mapping[str, AttainedService],
    ) -> None:
        self._api, self._scope, self._dependencies = api, scope, dependencies
        self._changed = asyncio.Event()
        self.synced = asyncio.Event()
        self._batches = Batches(self._changed.set)
        self._objects = ClusterObjects(self._batches.heard)
        self._loop_events = LoopEvents(dependencies.truth, dependencies.costs, dependencies.wall_ns, epoch_ns, attained)
        writer = Writer(api, self._objects.written, dependencies.may_act, self._changed.set)
        self._followed = self._objects.followed(scope.namespace)
        self._enforcer = Enforcer(self._objects, writer, dependencies.pauses, dependencies.say, dependencies.complain)
        self._tracked_jobs = TrackedJobs(scope, self._submitted)
        self._capacity = Capacity(self._objects, dependencies.profiles, epoch_ns)
        self._done: set[str] = set()

    @property
    def unlisted(self) -> list[str]:
        """The kinds of objects whose first list is not complete."""
        return [each.kind for each in self._followed if not each.store.synced]

    @property
    def done(self) -> int:
        """How many of the jobs of `Scope.until` have ended, including deleted ones."""
        return len(self._done)

    # --- calls of the loop --------------------------------------------------------------------------------------------

    @property
    def sharing(self) -> Mapping[str, str]:
        """How each device that pods may share is shared, by UUID. Any thread may ask."""
        return self._capacity.snapshot.cluster.sharing

    def remember(self, attained: Mapping[str, AttainedService]) -> dict[str, AttainedService]:
        """See LoopEvents."""
        return self._loop_events.remember(attained)

    def uid_of(self, job_id: str) -> str:
        """The EmuJob's uid; empty if the loop doesn't have the job."""
        in_loop = self._tracked_jobs.in_loop
        return in_loop[job_id].uid if job_id in in_loop else ""

    def emujob_of(self, job_id: str) -> EmuJob | None:
        """The EmuJob; None if it was deleted or the loop doesn't have the job."""
        tracked = self._tracked_jobs.in_loop.get(job_id)
        return self._objects.emujob(tracked) if tracked is not None else None

    def steps_done(self, job_id: str) -> int:
        """See LoopEvents; 0 if the loop doesn't have the job."""
        tracked = self._tracked_jobs.in_loop.get(job_id)
        return self._loop_events.steps_done(tracked) if tracked is not None else 0

    async def start(self, start: Start) -> None:
        """Raises NotYetError (a retry helps) if the job can't be started now, or if it isn't known whether it was started, and
        PlanRefusedError if its step time isn't known."""
        tracked = self._tracked_jobs.in_loop.get(start.job.job_id)
        if tracked is None:
            raise NotYetError(f"job {start.job.job_id!r} no longer exists")
        if tracked.elastic:
            self._loop_events.check_times(start.job, start.allocation)
        try:
            await self._enforcer.start(tracked, start.allocation)
        finally:
            self._look_again(tracked)
        tracked.phase = LoopPhase.STARTING
        tracked.allocation, tracked.since_ns = start.allocation, self._loop_events.now_ns()
        done = start.samples.first_sample if tracked.elastic else start.steps_done
        tracked.begin_run(start.steps_done, done, start.allocation)

    async def stop(self, job_id: str) -> None:
        """Requests the stop and returns; a STOPPED or FINISHED event follows."""
        tracked = self._tracked_jobs.in_loop.get(job_id)
        if tracked is not None and tracked.phase in (LoopPhase.STARTING, LoopPhase.RUNNING):
            tracked.phase = LoopPhase.STOPPING
            self._enforcer.enforce(tracked)
            self._look_again(tracked)  # the job may be idle already

    async def resize(self, job_id: str, allocation: Allocation) -> None:
        """Requests other CPUs and memory for the job's pods and returns."""
        tracked = self._tracked_jobs.in_loop.get(job_id)
        if tracked is not None and tracked.phase in (LoopPhase.STARTING, LoopPhase.RUNNING):
            self._loop_events.resized(tracked, allocation)
            self._enforcer.enforce(tracked)

    async def annotate(self, uid: str, name: str, text: str | None) -> None:
        """Writes an annotation of an EmuJob that still exists; None removes it."""
        tracked = self._tracked_jobs.by_uid.get(uid)
        emujob = self._objects.emujob(tracked) if tracked is not None else None
        if emujob is not None:
            await self._enforcer.annotate(emujob, name, text)

    # --- watching -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Raises LeadershipLostError (in a group) when this scheduler may not act any more."""
        pauses = self._dependencies.pauses
        try:
            async with asyncio.TaskGroup() as group:
                for each in (*self._followed, self._objects.followed_usages()):
                    group.create_task(follow(self._api, each, pauses, self._changed.set, self._watch_failed))
                group.create_task(self._process([each.store for each in self._followed]))
                group.create_task(self._await_loss())
        finally:
            await self._enforcer.close()

    async def _await_loss(self) -> None:
        await self._enforcer.lost

    async def _process(self, stores: Iterable[Store[Any]]) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(self._dependencies.pauses.settle)
            self._changed.clear()
            if all(store.synced for store in stores):
                self._process_changes()
                self.synced.set()

    def _process_changes(self) -> None:
        self._count_done()
        emujobs = self._objects.emujobs
        keys = self._objects.take_changed() | self._batches.take_released()
        if self._tracked_jobs.add(emujob for key in keys if (emujob := emujobs.get(key)) is not None):
            self._capacity.new_jobs()
        events = self._node_events()
        if events:  # all jobs are read again: other jobs fit on the changed nodes
            keys |= self._tracked_jobs.keys()
        pods = self._objects.pods_by_emujob() if keys else {}
        for tracked in self._tracked_jobs.named(keys):
            if not tracked.writing:
                events += self._process_job(tracked, self._objects.job_objects(tracked, pods.get(tracked.uid, ())))
        events += self._node_events()  # a job may have become stray
        if events:
            self._dependencies.deliver(events)

    def _count_done(self) -> None:
        until, before = self._scope.until, len(self._done)
        if until is not None:
            changed = (self._objects.emujobs.get(key) for key in self._objects.emujobs.dirty)
            self._done |= {emujob.key.uid for emujob in changed if emujob is not None and until.counts(emujob)}
        if len(self._done) > before:
            self._dependencies.deliver([])

    def _node_events(self) -> list[Event]:
        """One event if the nodes, or the GPUs that pods of others use, have changed."""
        if not self._capacity.refresh(self._tracked_jobs.by_uid):
            return []
        snapshot = self._capacity.snapshot
        self._dependencies.truth.renew(snapshot.cluster)
        return [NodesChanged(self._loop_events.now_ns(), Happening.NODES, "", -1, nodes=tuple(snapshot.states))]

    # --- one job ----------------------------------------------------------------------------------------------------

    def _process_job(self, tracked: TrackedJob, job_objects: JobObjects) -> list[Event]:
        events = self._advance(tracked, job_objects)
        stray = tracked.phase not in _WITH_ALLOCATION and any(pod.node for pod in job_objects.live)
        self._capacity.note_stray(tracked.uid, stray=stray)
        return events

    def _advance(self, tracked: TrackedJob, job_objects: JobObjects) -> list[Event]:
        state, emujob = state_of(job_objects), job_objects.emujob
        if tracked.phase in (LoopPhase.UNKNOWN, LoopPhase.FOREIGN) and not self._readable(tracked, job_objects, state):
            return []
        if (
            tracked.phase is LoopPhase.QUEUED
            and emujob is not None
            and self._read(tracked, job_objects, emujob) is None
        ):
            tracked.phase = LoopPhase.UNKNOWN  # the nodes on which the job fitted are gone
            return [self._end(tracked, job_objects, JobChange.REMOVED)]
        step = transition(tracked.phase, state)
        tracked.phase = step.phase
        events = [event for change in step.changes if (event := self._event(tracked, job_objects, change)) is not None]
        if step.stop or tracked.phase is LoopPhase.FOREIGN:
            self._enforcer.enforce(tracked)
        if tracked.phase is LoopPhase.ENDED:
            self._loop_events.forget(tracked.uid)
            if state is State.ABSENT:
                self._tracked_jobs.remove(tracked)
        return events + (self._loop_events.progress(tracked, emujob) if emujob is not None else [])

    def _readable(self, tracked: TrackedJob, job_objects: JobObjects, state: State) -> bool:
        """Whether the next change may be passed to the loop; reads the job if that change brings it into the loop."""
        if tracked.phase is LoopPhase.UNKNOWN and state is State.LEAVING and not _has_allocation(job_objects):
            return False  # a pod that was listed before its Job, or a job that was never scheduled
        if state not in (State.IDLE, State.LEAVING, *HOLDING) or job_objects.emujob is None:
            return state is not State.LEAVING
        if not submitted_at(job_objects.emujob):
            return False  # the controller is about to set it
        if state is State.IDLE and not self._batches.is_released(job_objects.emujob):
            return False
        tracked.spec = self._read(tracked, job_objects, job_objects.emujob)
        if tracked.spec is None and state in HOLDING:
            tracked.phase = LoopPhase.FOREIGN
            self._enforcer.enforce(tracked)
        return tracked.spec is not None

    def _read(self, tracked: TrackedJob, job_objects: JobObjects, emujob: EmuJob) -> JobSpec | None:
        """The scheduler's job; None, after a complaint, if it can't run."""
        if emujob.nodes > 1 and not self._scope.gangs:
            text = f"job {tracked.job_id!r} has {emujob.nodes} pods; this policy places jobs of one pod only"
            self._complain(tracked, Kind.UNSUPPORTED, text)
            return None
        try:
            submitted = self._batches.submitted(emujob)
            name, one_size = (tracked.job_id, tracked.row), ACTUATORS[emujob.actuator].one_size
            spec = read_job(emujob, job_objects, self._capacity.snapshot, name, submitted, one_size=one_size)
        except DoesNotFitError as error:
            self._complain(tracked, Kind.DOES_NOT_FIT, str(error))
            return None
        except InputError as error:
            self._complain(tracked, Kind.UNREADABLE, str(error))
            return None
        tracked.problem, tracked.elastic = "", emujob.spec.elastic
        return spec

    def _complain(self, tracked: TrackedJob, kind: Kind, text: str) -> None:
        """Reports a problem only when its text changed; jobs are re-read on every node change."""
        if text != tracked.problem:
            tracked.problem = text
            self._dependencies.complain(Complaint(kind, text, tracked.job_id, tracked.uid, retry=False))

    def _event(self, tracked: TrackedJob, job_objects: JobObjects, change: JobChange) -> Event | None:
        match change:
            case JobChange.ARRIVED | JobChange.ADOPTED:
                return self._enter(tracked, job_objects, change)
            case JobChange.STARTED:
                if job_objects.emujob is not None and ALLOCATION in job_objects.emujob.annotations:
                    self._enforcer.enforce(tracked)  # the annotation may still be that of an earlier run
                return self._loop_events.started(tracked)
            case JobChange.STOPPED:
                return self._loop_events.stopped(tracked, job_objects.emujob)
            case _:
                return self._end(tracked, job_objects, change)

    def _enter(self, tracked: TrackedJob, job_objects: JobObjects, change: JobChange) -> Event | None:
        assert tracked.spec is not None
        make = self._loop_events.adopted if change is JobChange.ADOPTED else self._loop_events.arrived
        event = make(tracked, job_objects, tracked.spec, self._capacity.snapshot)
        if event is None:
            tracked.phase = LoopPhase.FOREIGN
            self._dependencies.say(f"{tracked.job_id} runs without an allocation of this scheduler; it is stopped")
        else:
            self._tracked_jobs.in_loop[tracked.job_id] = tracked
        return event

    def _end(self, tracked: TrackedJob, job_objects: JobObjects, change: JobChange) -> Event:
        self._tracked_jobs.in_loop.pop(tracked.job_id, None)
        return self._loop_events.ended(tracked, job_objects.emujob, change)

    def _submitted(self, tracked: TrackedJob) -> str:
        emujob = self._objects.emujob(tracked)
        return self._batches.submitted(emujob) if emujob is not None else ""

    def _look_again(self, tracked: TrackedJob) -> None:
        self._objects.emujobs.dirty.add(tracked.key)
        self._changed.set()

    def _watch_failed(self, error: EmuGpuError) -> None:
        self._dependencies.say(str(error))


def _has_allocation(job_objects: JobObjects) -> bool:
    """Whether the Job or a live pod has an allocation annotation."""
    return any(pod.allocation for pod in job_objects.live) or (
        job_objects.job is not None and bool(job_objects.job.allocation)
    )
