"""The asynchronous half of the cluster: follows the objects, tells the loop what happened, has done what the loop wants.

Level-triggered: after every change of an object the job that it belongs to is looked at as a whole (sight.py), and what the
loop must hear follows from what it has heard before (tracking.py).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from emulator_runtime.domain.errors import EmuGpuError, InputError
from emulator_runtime.domain.job import JobSpec
from emulator_runtime.profiles.table import ProfileTable
from operators.emujob.names import ALLOCATION
from operators.emujob.offers import offers_of
from operators.following import Pauses, follow
from operators.kube import Api
from operators.scheduling.acting import Actor
from operators.scheduling.batches import Batches
from operators.scheduling.capacity import node_states
from operators.scheduling.errors import NotYetError
from operators.scheduling.hands import Hands
from operators.scheduling.objects import Mine, Order
from operators.scheduling.past import Past
from operators.scheduling.reading import Around, read_job
from operators.scheduling.roster import Roster
from operators.scheduling.scope import Scope
from operators.scheduling.seen import Seen, state_of
from operators.scheduling.sight import State
from operators.scheduling.telling import Teller
from operators.scheduling.track import Track
from operators.scheduling.tracking import HOLDS, Known, News, judge
from operators.store import Store
from scheduler_sims.clusters.base import Event, Happening, Start
from scheduler_sims.clusters.open import NodesChanged
from scheduler_sims.inputs.truth import OpenTruth
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.interface.plan import Allocation

_IN_BOOKS = (Known.STARTING, Known.RUNNING, Known.STOPPING)
"""What such a job has is in the loop's books."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What the watcher is given. `tell` gets what the loop must hear, `say` sentences for people."""

    profiles: ProfileTable
    costs: ClusterCosts
    truth: OpenTruth
    wall_ns: Callable[[], int]
    tell: Callable[[list[Event]], None]
    say: Callable[[str], None]
    may_act: Callable[[], bool]
    pauses: Pauses = field(default_factory=lambda: Pauses(settle=0.0))


class Watcher:
    """`run` never ends by itself; it is cancelled. `synced` is set once everything there was at the start has been told."""

    def __init__(self, api: Api, scope: Scope, tools: Tools, epoch_ns: int, pasts: Mapping[str, Past]) -> None:
        self._api, self._scope, self._tools = api, scope, tools
        self._epoch_ns = epoch_ns
        self._changed = asyncio.Event()
        self.synced = asyncio.Event()
        self._batches = Batches(self._changed.set)
        self._seen = Seen(self._batches.heard)
        self._teller = Teller(tools.truth, tools.costs, tools.wall_ns, epoch_ns, pasts)
        hands = Hands(api, self._seen.written, tools.may_act, self._changed.set)
        self._followed = self._seen.followed(scope.namespace)
        self._actor = Actor(self._seen, hands, tools.pauses, tools.say)
        self._roster = Roster(scope, self._submitted)
        self._around = Around((), (), tools.profiles, epoch_ns)
        self._others = Counter[str]()
        self._has_new = False
        self._stray: set[str] = set()
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

    def remember(self, pasts: Mapping[str, Past]) -> dict[str, Past]:
        """See Teller."""
        return self._teller.remember(pasts)

    def uid_of(self, job_id: str) -> str:
        """Of a job that the loop knows; empty where it is none."""
        return self._roster.in_loop[job_id].uid if job_id in self._roster.in_loop else ""

    def order_of(self, job_id: str) -> Order | None:
        """The EmuJob of a job that the loop knows."""
        track = self._roster.in_loop.get(job_id)
        return self._seen.order(track) if track is not None else None

    def steps_done(self, job_id: str) -> int:
        """Of a job that holds devices: as far as it was told, and how far it should be since then."""
        track = self._roster.in_loop.get(job_id)
        return self._teller.steps_done(track) if track is not None else 0

    async def start(self, start: Start) -> None:
        """Raises NotYetError (a retry helps) where the job can't be started at the moment, or nobody knows whether it was."""
        track = self._roster.in_loop.get(start.job.job_id)
        if track is None:
            raise NotYetError(f"job {start.job.job_id!r} has left")
        try:
            await self._actor.start(track, start.allocation)
        finally:
            self._touch(track)
        track.known, track.allocation, track.since_ns = Known.STARTING, start.allocation, self._teller.now_ns()

    async def stop(self, job_id: str) -> None:
        """It is wanted from now on; STOPPED, or FINISHED, follows."""
        track = self._roster.in_loop.get(job_id)
        if track is not None and track.known in (Known.STARTING, Known.RUNNING):
            track.known = Known.STOPPING
            self._actor.enforce(track)
            self._touch(track)  # it may be idle again already

    async def resize(self, job_id: str, allocation: Allocation) -> None:
        """Its pods are to have these CPUs and this memory from now on."""
        track = self._roster.in_loop.get(job_id)
        if track is not None and track.known in (Known.STARTING, Known.RUNNING):
            self._teller.divided(track, allocation)
            self._actor.enforce(track)

    async def annotate(self, uid: str, name: str, text: str) -> None:
        """An annotation of an EmuJob, if it is still there."""
        track = self._roster.by_uid.get(uid)
        order = self._seen.order(track) if track is not None else None
        if order is not None:
            await self._actor.annotate(order, name, text)

    # --- what goes on by itself -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Raises LeadershipLostError (in a group) when it may not act any more."""
        try:
            async with asyncio.TaskGroup() as group:
                for each in (*self._followed, self._seen.followed_beside()):
                    group.create_task(follow(self._api, each, self._tools.pauses, self._changed.set, self._failed))
                group.create_task(self._work([each.store for each in self._followed]))
                group.create_task(self._await_loss())
        finally:
            await self._actor.close()

    async def _await_loss(self) -> None:
        await self._actor.lost

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
        keys = self._seen.take_changed() | self._batches.released()
        # What a new job's pods have is no more anybody else's.
        self._has_new |= self._roster.enter(order for key in keys if (order := self._seen.orders.get(key)) is not None)
        events = self._renewed()
        if events:  # jobs that fitted nowhere may fit now, and the other way round
            keys |= self._roster.keys()
        pods = self._seen.pods_by_order() if keys else {}
        for track in self._roster.called(keys):
            if not track.writing:
                events += self._look_at(track, self._seen.mine(track, pods.get(track.uid, ())))
        if self._has_new:
            events += self._renewed()
        if events:
            self._tools.tell(events)

    def _count_done(self) -> None:
        until, before = self._scope.until, len(self._done)
        if until is not None:
            found = (self._seen.orders.get(key) for key in self._seen.orders.dirty)
            self._done |= {order.key.uid for order in found if order is not None and until.counts(order)}
        if len(self._done) > before:
            self._tools.tell([])

    def _renewed(self) -> list[Event]:
        """The nodes, where they have changed, and what pods of others have there."""
        seen = self._seen
        used = seen.usages.take_dirty() - {""}
        moved = seen.pools.take_dirty() | seen.nodes.take_dirty()
        if not (moved or used or self._has_new):
            return []
        self._has_new = False
        others = seen.used_by_others(self._roster.by_uid, self._stray)
        if not moved and others == self._others:
            return []
        self._others = others
        pools, nodes = seen.pools.values(), seen.nodes.values()
        states = node_states(pools, nodes, others)
        if states == self._around.states:
            return []
        self._around = Around(states, offers_of(pools, nodes), self._tools.profiles, self._epoch_ns)
        self._tools.truth.renew(self._around.cluster)
        return [NodesChanged(self._teller.now_ns(), Happening.NODES, "", -1, nodes=states)]

    # --- one job ----------------------------------------------------------------------------------------------------

    def _look_at(self, track: Track, mine: Mine) -> list[Event]:
        events = self._judge(track, mine)
        # What pods have of a job that holds nothing in the loop's books, such as half a gang, is as good as other people's.
        stray = track.known not in _IN_BOOKS and any(pod.facts.node for pod in mine.live)
        if stray != (track.uid in self._stray):
            self._stray ^= {track.uid}
            self._has_new = True
        return events

    def _judge(self, track: Track, mine: Mine) -> list[Event]:
        state = state_of(mine)
        if track.known in (Known.NOTHING, Known.STRANGE) and not self._readable(track, mine, state):
            return []
        if track.known is Known.QUEUED and mine.order is not None and self._read(track, mine, mine.order) is None:
            track.known = Known.NOTHING  # nodes have gone: it fits nowhere any more
            return [self._end(track, mine, News.REMOVED)]
        verdict = judge(track.known, state)
        track.known = verdict.known
        events = [event for news in verdict.news if (event := self._told(track, mine, news)) is not None]
        if verdict.stop or track.known is Known.STRANGE:
            self._actor.enforce(track)
        if track.known is Known.ENDED:
            self._teller.forget(track.uid)
            if state is State.ABSENT:
                self._roster.leave(track)
        return events + (self._teller.progress(track, mine.order) if mine.order is not None else [])

    def _readable(self, track: Track, mine: Mine, state: State) -> bool:
        """Reads the job where it comes next that the loop hears of it. One that can't be run is told once."""
        if track.known is Known.NOTHING and state is State.LEAVING and not _told_how(mine):
            return False  # a pod that came before its Job, or what nobody ever scheduled
        if state not in (State.IDLE, State.LEAVING, *HOLDS) or mine.order is None:
            return state is not State.LEAVING
        if not mine.order.time("submittedAt"):
            return False  # its controller is about to say when that was
        if state is State.IDLE and not self._batches.may_come(mine.order):
            return False
        track.spec = self._read(track, mine, mine.order)
        if track.spec is None and state in HOLDS:
            track.known = Known.STRANGE
            self._actor.enforce(track)
        return track.spec is not None

    def _read(self, track: Track, mine: Mine, order: Order) -> JobSpec | None:
        try:
            if order.nodes > 1 and not self._scope.gangs:
                raise InputError(
                    track.job_id, f"has {order.nodes} pods; this policy places jobs of one, so it is left alone"
                )
            submitted = self._batches.submitted(order)
            spec = read_job(order, mine, self._around, (track.job_id, track.row), submitted)
        except InputError as error:
            if str(error) != track.problem:
                track.problem = str(error)
                self._tools.say(track.problem)
            return None
        track.problem = ""
        return spec

    def _told(self, track: Track, mine: Mine, news: News) -> Event | None:
        match news:
            case News.ARRIVED | News.ADOPTED:
                return self._enter(track, mine, adopted=news is News.ADOPTED)
            case News.STARTED:
                if mine.order is not None and ALLOCATION in mine.order.annotations:
                    self._actor.enforce(track)  # that of a former run is there still
                return self._teller.starts(track)
            case News.STOPPED:
                return self._teller.stops(track, mine.order)
            case _:
                return self._end(track, mine, news)

    def _enter(self, track: Track, mine: Mine, *, adopted: bool) -> Event | None:
        assert track.spec is not None
        tell = self._teller.holds if adopted else self._teller.waits
        event = tell(track, mine, track.spec, self._around)
        if event is None:
            track.known = Known.STRANGE
            self._tools.say(f"{track.job_id} runs, but not as this scheduler would have it; it is stopped")
        else:
            self._roster.in_loop[track.job_id] = track
        return event

    def _end(self, track: Track, mine: Mine, news: News) -> Event:
        self._roster.in_loop.pop(track.job_id, None)
        return self._teller.ends(track, mine.order, news)

    def _submitted(self, track: Track) -> str:
        order = self._seen.order(track)
        return self._batches.submitted(order) if order is not None else ""

    def _touch(self, track: Track) -> None:
        self._seen.orders.dirty.add(track.key)
        self._changed.set()

    def _failed(self, error: EmuGpuError) -> None:
        self._tools.say(str(error))


def _told_how(mine: Mine) -> bool:
    """Whether anything says how it is to run."""
    return any(pod.allocation for pod in mine.live) or (mine.job is not None and bool(mine.job.facts.allocation))
