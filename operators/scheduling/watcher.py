"""The asynchronous half of the cluster: follows the objects, tells the loop what happened, has done what the loop wants.

Level-triggered: after every change of an object the job that it belongs to is looked at as a whole (job_state.py), and what the
loop must hear follows from what it has heard before (track/tracked_job.py).
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
from operators.objects.names import ALLOCATION
from operators.scheduling.act.actuators import ACTUATORS, state_of
from operators.scheduling.act.enforcer import Enforcer
from operators.scheduling.act.writer import NotYetError, Writer
from operators.scheduling.complaints import Complaint, Kind
from operators.scheduling.remember.handover import AttainedService
from operators.scheduling.see.capacity import Capacity
from operators.scheduling.see.cluster_objects import ClusterObjects
from operators.scheduling.see.job_objects import JobObjects, ScheduledEmuJob
from operators.scheduling.see.job_state import State
from operators.scheduling.track.batches import Batches
from operators.scheduling.track.job_reading import read_job
from operators.scheduling.track.loop_events import LoopEvents
from operators.scheduling.track.tracked_job import HOLDS, LoopPhase, News, TrackedJob, judge
from operators.scheduling.track.tracked_jobs import Roster, Scope
from scheduler_sims.clusters.base import Event, Happening, Start
from scheduler_sims.clusters.open import NodesChanged
from scheduler_sims.inputs.fit import DoesNotFitError
from scheduler_sims.inputs.truth import OpenTruth
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.interface.plan import Allocation

_IN_BOOKS = (LoopPhase.STARTING, LoopPhase.RUNNING, LoopPhase.STOPPING)
"""What such a job has is in the loop's books."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What the watcher is given. `tell` gets what the loop must hear, `say` sentences for people, `complain` problems of jobs."""

    profiles: ProfileTable
    costs: ClusterCosts
    truth: OpenTruth
    wall_ns: Callable[[], int]
    tell: Callable[[list[Event]], None]
    say: Callable[[str], None]
    complain: Callable[[Complaint], None]
    may_act: Callable[[], bool]
    pauses: Pauses = field(default_factory=lambda: Pauses(settle=0.0))


class Watcher:
    """`run` never ends by itself; it is cancelled. `synced` is set once everything there was at the start has been told."""

    def __init__(
        self, api: Api, scope: Scope, tools: Tools, epoch_ns: int, attained: Mapping[str, AttainedService]
    ) -> None:
        self._api, self._scope, self._tools = api, scope, tools
        self._changed = asyncio.Event()
        self.synced = asyncio.Event()
        self._batches = Batches(self._changed.set)
        self._objects = ClusterObjects(self._batches.heard)
        self._loop_events = LoopEvents(tools.truth, tools.costs, tools.wall_ns, epoch_ns, attained)
        writer = Writer(api, self._objects.written, tools.may_act, self._changed.set)
        self._followed = self._objects.followed(scope.namespace)
        self._enforcer = Enforcer(self._objects, writer, tools.pauses, tools.say, tools.complain)
        self._roster = Roster(scope, self._submitted)
        self._capacity = Capacity(self._objects, tools.profiles, epoch_ns)
        self._done: set[str] = set()

    @property
    def unlisted(self) -> list[str]:
        """The kinds of objects that are waited for."""
        return [each.kind for each in self._followed if not each.store.synced]

    @property
    def done(self) -> int:
        """Jobs that the scope waits for and that have ended, deleted ones too."""
        return len(self._done)

    # --- what the loop asks -----------------------------------------------------------------------------------------

    def remember(self, attained: Mapping[str, AttainedService]) -> dict[str, AttainedService]:
        """See LoopEvents."""
        return self._loop_events.remember(attained)

    def uid_of(self, job_id: str) -> str:
        """Of a job that the loop knows; empty where it is none."""
        return self._roster.in_loop[job_id].uid if job_id in self._roster.in_loop else ""

    def order_of(self, job_id: str) -> ScheduledEmuJob | None:
        """The EmuJob of a job that the loop knows."""
        tracked = self._roster.in_loop.get(job_id)
        return self._objects.order(tracked) if tracked is not None else None

    def steps_done(self, job_id: str) -> int:
        """Of a job that holds devices: as far as it was told, and how far it should be since then."""
        tracked = self._roster.in_loop.get(job_id)
        return self._loop_events.steps_done(tracked) if tracked is not None else 0

    async def start(self, start: Start) -> None:
        """Raises NotYetError (a retry helps) where the job can't be started at the moment, or nobody knows whether it was."""
        tracked = self._roster.in_loop.get(start.job.job_id)
        if tracked is None:
            raise NotYetError(f"job {start.job.job_id!r} has left")
        try:
            await self._enforcer.start(tracked, start.allocation)
        finally:
            self._touch(tracked)
        tracked.known, tracked.allocation, tracked.since_ns = (
            LoopPhase.STARTING,
            start.allocation,
            self._loop_events.now_ns(),
        )

    async def stop(self, job_id: str) -> None:
        """It is wanted from now on; STOPPED, or FINISHED, follows."""
        tracked = self._roster.in_loop.get(job_id)
        if tracked is not None and tracked.known in (LoopPhase.STARTING, LoopPhase.RUNNING):
            tracked.known = LoopPhase.STOPPING
            self._enforcer.enforce(tracked)
            self._touch(tracked)  # it may be idle again already

    async def resize(self, job_id: str, allocation: Allocation) -> None:
        """Its pods are to have these CPUs and this memory from now on."""
        tracked = self._roster.in_loop.get(job_id)
        if tracked is not None and tracked.known in (LoopPhase.STARTING, LoopPhase.RUNNING):
            self._loop_events.divided(tracked, allocation)
            self._enforcer.enforce(tracked)

    async def annotate(self, uid: str, name: str, text: str | None) -> None:
        """Writes an annotation of an EmuJob that still exists; None removes it."""
        tracked = self._roster.by_uid.get(uid)
        order = self._objects.order(tracked) if tracked is not None else None
        if order is not None:
            await self._enforcer.annotate(order, name, text)

    # --- what goes on by itself -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Raises LeadershipLostError (in a group) when it may not act any more."""
        try:
            async with asyncio.TaskGroup() as group:
                for each in (*self._followed, self._objects.followed_beside()):
                    group.create_task(follow(self._api, each, self._tools.pauses, self._changed.set, self._failed))
                group.create_task(self._work([each.store for each in self._followed]))
                group.create_task(self._await_loss())
        finally:
            await self._enforcer.close()

    async def _await_loss(self) -> None:
        await self._enforcer.lost

    async def _work(self, stores: Iterable[Store[Any]]) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(self._tools.pauses.settle)
            self._changed.clear()
            if all(store.synced for store in stores):
                self._look_at_changes()
                self.synced.set()

    def _look_at_changes(self) -> None:
        self._count_done()
        keys = self._objects.take_changed() | self._batches.released()
        if self._roster.enter(order for key in keys if (order := self._objects.orders.get(key)) is not None):
            self._capacity.new_jobs()
        events = self._renewed()
        if events:  # jobs that fitted nowhere may fit now, and the other way round
            keys |= self._roster.keys()
        pods = self._objects.pods_by_order() if keys else {}
        for tracked in self._roster.called(keys):
            if not tracked.writing:
                events += self._look_at(tracked, self._objects.job_objects(tracked, pods.get(tracked.uid, ())))
        events += self._renewed()  # one of them may have become stray
        if events:
            self._tools.tell(events)

    def _count_done(self) -> None:
        until, before = self._scope.until, len(self._done)
        if until is not None:
            found = (self._objects.orders.get(key) for key in self._objects.orders.dirty)
            self._done |= {order.key.uid for order in found if order is not None and until.counts(order)}
        if len(self._done) > before:
            self._tools.tell([])

    def _renewed(self) -> list[Event]:
        """The nodes, where they have changed, or what pods of others have there."""
        if not self._capacity.renewed(self._roster.by_uid):
            return []
        cluster_state = self._capacity.cluster_state
        self._tools.truth.renew(cluster_state.cluster)
        return [NodesChanged(self._loop_events.now_ns(), Happening.NODES, "", -1, nodes=tuple(cluster_state.states))]

    # --- one job ----------------------------------------------------------------------------------------------------

    def _look_at(self, tracked: TrackedJob, job_objects: JobObjects) -> list[Event]:
        events = self._judge(tracked, job_objects)
        stray = tracked.known not in _IN_BOOKS and any(pod.facts.node for pod in job_objects.live)
        self._capacity.note_stray(tracked.uid, stray=stray)
        return events

    def _judge(self, tracked: TrackedJob, job_objects: JobObjects) -> list[Event]:
        state = state_of(job_objects)
        if tracked.known in (LoopPhase.NOTHING, LoopPhase.STRANGE) and not self._readable(tracked, job_objects, state):
            return []
        if (
            tracked.known is LoopPhase.QUEUED
            and job_objects.order is not None
            and self._read(tracked, job_objects, job_objects.order) is None
        ):
            tracked.known = LoopPhase.NOTHING  # nodes have gone: it fits nowhere any more
            return [self._end(tracked, job_objects, News.REMOVED)]
        verdict = judge(tracked.known, state)
        tracked.known = verdict.known
        events = [event for news in verdict.news if (event := self._told(tracked, job_objects, news)) is not None]
        if verdict.stop or tracked.known is LoopPhase.STRANGE:
            self._enforcer.enforce(tracked)
        if tracked.known is LoopPhase.ENDED:
            self._loop_events.forget(tracked.uid)
            if state is State.ABSENT:
                self._roster.leave(tracked)
        return events + (
            self._loop_events.progress(tracked, job_objects.order) if job_objects.order is not None else []
        )

    def _readable(self, tracked: TrackedJob, job_objects: JobObjects, state: State) -> bool:
        """Reads the job where it comes next that the loop hears of it. One that can't be run is told once."""
        if tracked.known is LoopPhase.NOTHING and state is State.LEAVING and not _told_how(job_objects):
            return False  # a pod that came before its Job, or what nobody ever scheduled
        if state not in (State.IDLE, State.LEAVING, *HOLDS) or job_objects.order is None:
            return state is not State.LEAVING
        if not job_objects.order.time("submittedAt"):
            return False  # its controller is about to say when that was
        if state is State.IDLE and not self._batches.may_come(job_objects.order):
            return False
        tracked.spec = self._read(tracked, job_objects, job_objects.order)
        if tracked.spec is None and state in HOLDS:
            tracked.known = LoopPhase.STRANGE
            self._enforcer.enforce(tracked)
        return tracked.spec is not None

    def _read(self, tracked: TrackedJob, job_objects: JobObjects, order: ScheduledEmuJob) -> JobSpec | None:
        if order.nodes > 1 and not self._scope.gangs:
            text = f"job {tracked.job_id!r} has {order.nodes} pods; this policy places jobs of one pod, and leaves it alone"
            self._complain(tracked, Kind.UNSUPPORTED, text)
            return None
        try:
            submitted = self._batches.submitted(order)
            name, one_size = (tracked.job_id, tracked.row), ACTUATORS[order.actuator].one_size
            spec = read_job(order, job_objects, self._capacity.cluster_state, name, submitted, one_size=one_size)
        except DoesNotFitError as error:
            self._complain(tracked, Kind.DOES_NOT_FIT, str(error))
            return None
        except InputError as error:
            self._complain(tracked, Kind.UNREADABLE, str(error))
            return None
        tracked.problem = ""
        return spec

    def _complain(self, tracked: TrackedJob, kind: Kind, text: str) -> None:
        """Once for each text: the job is read again after each change of the nodes."""
        if text != tracked.problem:
            tracked.problem = text
            self._tools.complain(Complaint(kind, text, tracked.job_id, tracked.uid, retry=False))

    def _told(self, tracked: TrackedJob, job_objects: JobObjects, news: News) -> Event | None:
        match news:
            case News.ARRIVED | News.ADOPTED:
                return self._enter(tracked, job_objects, adopted=news is News.ADOPTED)
            case News.STARTED:
                if job_objects.order is not None and ALLOCATION in job_objects.order.annotations:
                    self._enforcer.enforce(tracked)  # that of a former run is there still
                return self._loop_events.starts(tracked)
            case News.STOPPED:
                return self._loop_events.stops(tracked, job_objects.order)
            case _:
                return self._end(tracked, job_objects, news)

    def _enter(self, tracked: TrackedJob, job_objects: JobObjects, *, adopted: bool) -> Event | None:
        assert tracked.spec is not None
        tell = self._loop_events.holds if adopted else self._loop_events.waits
        event = tell(tracked, job_objects, tracked.spec, self._capacity.cluster_state)
        if event is None:
            tracked.known = LoopPhase.STRANGE
            self._tools.say(f"{tracked.job_id} runs, but not as this scheduler would have it; it is stopped")
        else:
            self._roster.in_loop[tracked.job_id] = tracked
        return event

    def _end(self, tracked: TrackedJob, job_objects: JobObjects, news: News) -> Event:
        self._roster.in_loop.pop(tracked.job_id, None)
        return self._loop_events.ends(tracked, job_objects.order, news)

    def _submitted(self, tracked: TrackedJob) -> str:
        order = self._objects.order(tracked)
        return self._batches.submitted(order) if order is not None else ""

    def _touch(self, tracked: TrackedJob) -> None:
        self._objects.orders.dirty.add(tracked.key)
        self._changed.set()

    def _failed(self, error: EmuGpuError) -> None:
        self._tools.say(str(error))


def _told_how(job_objects: JobObjects) -> bool:
    """Whether anything says how it is to run."""
    return any(pod.allocation for pod in job_objects.live) or (
        job_objects.job is not None and bool(job_objects.job.facts.allocation)
    )
