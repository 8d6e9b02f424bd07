"""The asynchronous half of the cluster: follows the objects, tells the loop what happened, carries out what it wants.

Level-triggered: after every change of an object the job that it belongs to is looked at as a whole (sight.py), and what the
loop must hear follows from what it has heard before (tracking.py). A start is one write while the loop waits; a stop and a
new division of CPUs and memory are wanted from then on, and tried until they are so.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from emulator_runtime.domain.errors import EmuGpuError, InputError
from emulator_runtime.domain.units import NS_PER_S, to_s
from emulator_runtime.profiles.table import ProfileTable
from operators.clock import seconds_of
from operators.documents import text_at, whole_at
from operators.following import Followed, Pauses, follow
from operators.jobs.names import ALLOCATION, JOB_LABEL
from operators.jobs.offers import offers_of
from operators.kube import EMUJOB, JOB, NODE, POD, POOL, Api, ConflictError, NotThereError, everywhere, on_nodes
from operators.leader import LeadershipLostError
from operators.pools.objects import NodeFacts, PoolFacts, node_facts, pool_facts
from operators.scheduling.actuators import ACTUATORS
from operators.scheduling.capacity import node_states
from operators.scheduling.errors import NotYetError
from operators.scheduling.hands import Hands, Wanted
from operators.scheduling.objects import (
    JobSight,
    Mine,
    Order,
    PodSight,
    Usage,
    job_sight,
    order_of,
    pod_sight,
    usage_of,
)
from operators.scheduling.past import Past
from operators.scheduling.reading import (
    Around,
    gpus_of,
    held_by,
    job_id_of,
    noted,
    present,
    present_with,
    read_job,
    row_of,
)
from operators.scheduling.scope import Scope
from operators.scheduling.sight import State, look
from operators.scheduling.stores import DirtyStore
from operators.scheduling.track import Pace, Track
from operators.scheduling.tracking import HOLDS, Known, News, judge
from operators.store import Store
from scheduler_sims.clusters.base import Event, Happening, Start
from scheduler_sims.clusters.open import NodesChanged, Submitted
from scheduler_sims.inputs.truth import OpenTruth
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.interface.plan import Allocation

ATTEMPTS = 3
"""So often a start looks again and writes again where the Job has changed under it, such as its status."""
FIRST_FREE_ROW = 1_000_000_000
_HOSTNAME = "kubernetes.io/hostname"
_ENDED = {News.FINISHED: Happening.FINISHED, News.FAILED: Happening.FAILED, News.REMOVED: Happening.REMOVED}


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
        self.pasts: Mapping[str, Past] = pasts
        self._orders: DirtyStore[Order] = DirtyStore(order_of, lambda order: str(order.key))
        self._jobs: DirtyStore[JobSight] = DirtyStore(job_sight, lambda job: str(job.facts.key))
        self._pods: DirtyStore[PodSight] = DirtyStore(pod_sight, _order_of_pod)
        self._pools: DirtyStore[PoolFacts] = DirtyStore(pool_facts, lambda _pool: "")
        self._nodes: DirtyStore[NodeFacts] = DirtyStore(node_facts, lambda _node: "")
        self._usages: DirtyStore[Usage] = DirtyStore(usage_of, lambda usage: usage.node)
        self._changed = asyncio.Event()
        self.synced = asyncio.Event()
        self._tracks: dict[str, Track] = {}
        self._by_id: dict[str, Track] = {}
        self._rows = count(FIRST_FREE_ROW)
        self._has_new = False
        self._done: set[str] = set()
        self._around = Around((), (), tools.profiles, epoch_ns)
        stores: dict[type[Any], Store[Any]] = {EMUJOB: self._orders, JOB: self._jobs, POD: self._pods}
        self._hands = Hands(api, stores, tools.may_act, self._changed.set)
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def done(self) -> int:
        """Jobs that the scope waits for and that have ended, deleted ones too."""
        return len(self._done)

    # --- what the loop asks -----------------------------------------------------------------------------------------

    def now_ns(self) -> int:
        return self._tools.wall_ns() - self._epoch_ns

    def uid_of(self, job_id: str) -> str:
        """Of a job that the loop knows; empty where it is none."""
        return self._by_id[job_id].uid if job_id in self._by_id else ""

    def steps_done(self, job_id: str) -> int:
        """Of a job that holds devices: as far as it was told, and how far it should be since then."""
        track = self._by_id.get(job_id)
        if track is None:
            return 0
        pace = track.pace
        return track.told_steps if pace is None else pace.steps_at(self.now_ns())

    async def start(self, start: Start) -> None:
        """Raises NotYetError (a retry helps) where the job can't be started at the moment, or nobody knows whether it was."""
        track = self._by_id.get(start.job.job_id)
        if track is None or track.known is not Known.QUEUED:
            raise NotYetError(f"job {start.job.job_id!r} is not waiting any more")
        track.writing = True
        try:
            await self._start(track, start.allocation)
        except (ConflictError, NotThereError) as error:
            raise NotYetError(f"job {track.job_id!r} has changed at this moment: {error}") from error
        except LeadershipLostError:
            raise
        except EmuGpuError as error:
            self._tools.say(f"{track.job_id} can't be started: {error}; trying again")
            raise NotYetError(str(error)) from error
        finally:
            track.writing = False
            self._touch(track)
        track.known, track.allocation, track.since_ns = Known.STARTING, start.allocation, self.now_ns()

    async def stop(self, job_id: str) -> None:
        """It is wanted from now on; STOPPED, or FINISHED, follows."""
        track = self._by_id.get(job_id)
        if track is not None and track.known in (Known.STARTING, Known.RUNNING):
            track.known = Known.STOPPING
            self._enforce(track)
            self._touch(track)  # it may be idle again already

    async def resize(self, job_id: str, allocation: Allocation) -> None:
        """Its pods are to have these CPUs and this memory from now on."""
        track = self._by_id.get(job_id)
        if track is None or track.known not in (Known.STARTING, Known.RUNNING):
            return
        now_ns = self.now_ns()
        if track.pace is not None and track.spec is not None:
            track.pace = Pace(track.pace.steps_at(now_ns), now_ns, self._times(track.spec, allocation))
        track.allocation = allocation
        self._enforce(track)

    def order_of(self, job_id: str) -> Order | None:
        """The EmuJob of a job that the loop knows."""
        track = self._by_id.get(job_id)
        return self._orders.get(track.key) if track is not None else None

    async def annotate(self, uid: str, name: str, text: str) -> None:
        """Tells what went wrong; nobody waits for it."""
        order = next((each for each in self._orders.values() if each.key.uid == uid), None)
        if order is None:
            return
        try:
            await self._hands.patch(EMUJOB, replace(order.key, version=""), {"metadata": {"annotations": {name: text}}})
        except NotThereError:
            return
        except EmuGpuError as error:
            self._failed(error)

    # --- what goes on by itself -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Raises LeadershipLostError (in a group) when it may not act any more."""
        within = {"namespace": self._scope.namespace or "*"}
        labelled = {**everywhere(JOB_LABEL), **within}
        followed = (
            Followed(EMUJOB, self._orders, within),
            Followed(JOB, self._jobs, labelled),
            Followed(POD, self._pods, labelled),
            Followed(POOL, self._pools),
            Followed(NODE, self._nodes),
        )
        async with asyncio.TaskGroup() as group:
            for each in followed:
                group.create_task(follow(self._api, each, self._tools.pauses, self._changed.set, self._failed))
            group.create_task(self._work([each.store for each in followed]))
            others = Followed(POD, self._usages, on_nodes())
            group.create_task(follow(self._api, others, self._tools.pauses, self._changed.set, self._failed))
            group.create_task(self._await_failure())

    async def _await_failure(self) -> None:
        await self._failure

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
        keys = self._orders.take_dirty() | self._jobs.take_dirty() | self._pods.take_dirty()
        tracks = self._tracks_of(keys)
        events = self._renewed()
        if events:  # jobs that fitted nowhere may fit now, and the other way round
            keys |= {track.key for track in self._tracks.values()}
            tracks = self._tracks_of(keys)
        pods: defaultdict[str, list[PodSight]] = defaultdict(list)
        for pod in self._pods.values() if keys else ():
            pods[pod.order].append(pod)
        for track in tracks:
            if not track.writing:
                events += self._look_at(track, self._mine(track, pods[track.uid]))
        if events:
            self._tools.tell(events)

    def _count_done(self) -> None:
        until, before = self._scope.until, len(self._done)
        if until is not None:
            found = (self._orders.get(key) for key in self._orders.dirty)
            self._done |= {order.key.uid for order in found if order is not None and until.counts(order)}
        if len(self._done) > before:
            self._tools.tell([])

    def _renewed(self) -> list[Event]:
        """The nodes, where they have changed, and what pods of others have there."""
        used = self._usages.take_dirty() - {""}
        if not (self._pools.take_dirty() | self._nodes.take_dirty() | used or self._has_new):
            return []
        self._has_new = False
        pools, nodes, others = self._pools.values(), self._nodes.values(), Counter[str]()
        for usage in self._usages.values():
            if usage.gpus and usage.order not in self._tracks:
                others[usage.node] += usage.gpus
        states = node_states(pools, nodes, others)
        if states == self._around.states:
            return []
        self._around = Around(states, offers_of(pools, nodes), self._tools.profiles, self._epoch_ns)
        self._tools.truth.renew(self._around.cluster)
        return [NodesChanged(self.now_ns(), Happening.NODES, "", -1, nodes=states)]

    def _tracks_of(self, keys: set[str]) -> list[Track]:
        """The jobs of these names, in order of submission; a name may have two, one of them about to go."""
        new = [order for key in keys if (order := self._orders.get(key)) is not None and self._is_new(order)]
        for order in sorted(new, key=lambda order: (order.time("submittedAt"), order.facts.created, str(order.key))):
            self._tracks[order.key.uid] = self._new_track(order)
            self._has_new = True  # what its pods have is no more anybody else's
        found = [track for track in self._tracks.values() if track.key in keys]
        return sorted(found, key=lambda track: (self._submitted(track), track.row, track.key))

    def _is_new(self, order: Order) -> bool:
        return order.key.uid not in self._tracks and self._scope.has(order)

    def _new_track(self, order: Order) -> Track:
        rows = {track.row for track in self._tracks.values()}
        row = row_of(order)
        if row is None or row in rows:
            row = next(number for number in self._rows if number not in rows)
        job_id = job_id_of(order, alone=bool(self._scope.namespace))
        if job_id in self._by_id or any(track.job_id == job_id for track in self._tracks.values()):
            job_id = f"{order.key}/{order.key.uid}"
        return Track(order.key.uid, str(order.key), job_id, row)

    def _submitted(self, track: Track) -> str:
        order = self._orders.get(track.key)
        return order.time("submittedAt") if order is not None and order.key.uid == track.uid else ""

    def _mine(self, track: Track, pods: Iterable[PodSight]) -> Mine:
        order, job = self._orders.get(track.key), self._jobs.get(track.key)
        order = order if order is not None and order.key.uid == track.uid else None
        own = job if job is not None and job.facts.owner == track.uid and not job.facts.deleting else None
        return Mine(order, own, tuple(pods))

    def _mine_now(self, track: Track) -> Mine:
        return self._mine(track, (pod for pod in self._pods.values() if pod.order == track.uid))

    # --- one job ----------------------------------------------------------------------------------------------------

    def _look_at(self, track: Track, mine: Mine) -> list[Event]:
        state = _state(mine)
        if track.known is Known.NOTHING and state is State.LEAVING and not _told_how(mine):
            return []  # a pod that came before its Job, or what nobody ever scheduled
        if track.known in (Known.NOTHING, Known.STRANGE) and not self._readable(track, mine, state):
            return []
        if track.known is Known.QUEUED and not self._still_fits(track, mine):
            track.known = Known.NOTHING
            return [self._event(track, Happening.REMOVED, reason=track.problem)]
        verdict = judge(track.known, state)
        track.known = verdict.known
        events = [event for news in verdict.news if (event := self._told(track, mine, news)) is not None]
        if verdict.stop or track.known is Known.STRANGE:
            self._enforce(track)
        if track.known is Known.ENDED and state is State.ABSENT:
            self._tracks.pop(track.uid, None)
        return events + self._progress(track, mine)

    def _readable(self, track: Track, mine: Mine, state: State) -> bool:
        """Reads the job where it comes next that the loop hears of it. One that can't be run is told once."""
        if state not in (State.IDLE, State.LEAVING, *HOLDS) or mine.order is None:
            return state is not State.LEAVING
        if not mine.order.time("submittedAt"):
            return False  # its controller is about to say when that was
        track.spec = self._read(track, mine, mine.order)
        if track.spec is None and state in HOLDS:
            track.known = Known.STRANGE
            self._enforce(track)
        return track.spec is not None

    def _read(self, track: Track, mine: Mine, order: Order) -> Any:
        try:
            spec = read_job(order, mine, self._around, track.job_id, track.row)
        except InputError as error:
            if str(error) != track.problem:
                track.problem = str(error)
                self._tools.say(track.problem)
            return None
        track.problem = ""
        return spec

    def _still_fits(self, track: Track, mine: Mine) -> bool:
        return mine.order is None or self._read(track, mine, mine.order) is not None

    def _told(self, track: Track, mine: Mine, news: News) -> Event | None:
        match news:
            case News.ARRIVED | News.ADOPTED:
                return self._submit(track, mine, adopted=news is News.ADOPTED)
            case News.STARTED:
                self._begin_pace(track)
                if mine.order is not None and ALLOCATION in mine.order.annotations:
                    self._enforce(track)  # that of a former run is there still
                return self._event(track, Happening.STARTED)
            case News.STOPPED:
                steps = self._steps_at_stop(track, mine)
                track.pace, track.allocation, track.told_steps = None, None, steps
                return self._event(track, Happening.STOPPED, steps)
            case _:
                return self._end(track, mine, news)

    def _submit(self, track: Track, mine: Mine, *, adopted: bool) -> Event | None:
        assert track.spec is not None
        spec, now_ns = track.spec, self.now_ns()
        held = held_by(mine, spec, self._around) if adopted else None
        if adopted and held is None:
            track.known = Known.STRANGE
            self._tools.say(f"{track.job_id} runs, but not as this scheduler would have it; it is stopped")
            return None
        job = present(mine, spec, self._around, self.pasts, to_s(now_ns))
        self._tools.truth.add(spec)
        self._by_id[track.job_id] = track
        track.told_steps = job.steps_done
        if held is not None:
            job = present_with(job, held, self.pasts, track.uid, to_s(now_ns))
            job = replace(job, started=track.known is not Known.STARTING, stopping=track.known is Known.STOPPING)
            track.allocation, track.since_ns = held, round(job.running_since_s * NS_PER_S)
            if job.started:
                track.pace = Pace(job.steps_done, now_ns, self._times(spec, held))
        return Submitted(now_ns, Happening.SUBMITTED, track.job_id, track.row, job.steps_done, job=job)

    def _begin_pace(self, track: Track) -> None:
        if track.spec is not None and track.allocation is not None:
            begin_ns = round(self._tools.costs.begin_s(resumed=track.told_steps > 0) * NS_PER_S)
            track.pace = Pace(track.told_steps, self.now_ns() + begin_ns, self._times(track.spec, track.allocation))

    def _times(self, spec: Any, allocation: Allocation) -> Any:
        return self._tools.truth.step_times(spec, allocation)

    def _steps_at_stop(self, track: Track, mine: Mine) -> int:
        """As its status says where that knows the run's end; until then how far it should be."""
        status = mine.order.steps_done if mine.order is not None else 0
        estimate = track.told_steps if track.pace is None else track.pace.steps_at(self.now_ns())
        known = mine.order is not None and self._told_end(track, mine.order)
        return status if known else max(status, estimate)

    def _end(self, track: Track, mine: Mine, news: News) -> Event:
        finished_ns = self._emulated(mine.order.time("finishedAt")) if mine.order is not None else None
        now_ns = self.now_ns()
        at_ns = now_ns if finished_ns is None else min(now_ns, finished_ns)
        steps = track.spec.steps if news is News.FINISHED and track.spec is not None else track.told_steps
        reason = mine.order.failure if news is News.FAILED and mine.order is not None else ""
        track.pace = track.allocation = None
        self._by_id.pop(track.job_id, None)
        return Event(at_ns, _ENDED[news], track.job_id, track.row, steps, reason)

    def _progress(self, track: Track, mine: Mine) -> list[Event]:
        """What its status knows of its steps that the loop doesn't."""
        if mine.order is None or track.spec is None:
            return []
        steps = min(mine.order.steps_done, track.spec.steps - 1)
        if track.known is Known.RUNNING and track.pace is not None:
            track.pace = self._corrected(track, track.pace, mine.order, steps)
        waits = track.known is Known.QUEUED and steps != track.told_steps
        if not waits or (steps < track.told_steps and not self._told_end(track, mine.order)):
            return []
        track.told_steps = steps
        return [self._event(track, Happening.PROGRESS, steps)]

    def _corrected(self, track: Track, pace: Pace, order: Order, steps: int) -> Pace:
        """By when that many steps were done, or its run began, where its status says so; else by what was told just now."""
        now_ns, run = self.now_ns(), order.last_run
        told_ns = self._emulated(order.time("stepsDoneAt"))
        if told_ns is not None and told_ns >= track.since_ns:
            return Pace(steps, min(now_ns, told_ns), pace.times)
        began_ns = self._emulated(text_at(run, "from"))
        if began_ns is not None and began_ns >= track.since_ns and not text_at(run, "to"):
            pace = Pace(whole_at(run, "fromStep"), min(now_ns, began_ns), pace.times)
        return Pace(steps, now_ns, pace.times) if steps > pace.steps_at(now_ns) else pace

    def _told_end(self, track: Track, order: Order) -> bool:
        """Whether its status knows how its last run ended, and so how many steps are done."""
        ended_ns = self._emulated(text_at(order.last_run, "to"))
        return ended_ns is not None and ended_ns >= track.since_ns

    def _emulated(self, time: str) -> int | None:
        seconds = seconds_of(time)
        return None if seconds is None else round(seconds * NS_PER_S) - self._epoch_ns

    def _event(self, track: Track, what: Happening, steps: int = 0, reason: str = "") -> Event:
        return Event(self.now_ns(), what, track.job_id, track.row, steps, reason)

    # --- writes -----------------------------------------------------------------------------------------------------

    async def _start(self, track: Track, allocation: Allocation) -> None:
        for attempt in range(ATTEMPTS):
            mine = self._mine_now(track)
            if mine.order is None or _state(mine) is not State.IDLE:
                raise NotYetError(f"job {track.job_id!r} is not ready to be started")
            note, devices = noted(mine.order, allocation)
            wanted = Wanted(note, devices, gpus_of(mine.order, allocation.configuration), self._hosts(note.nodes))
            try:
                await ACTUATORS[mine.order.actuator].start(self._hands, mine, wanted)
                return
            except ConflictError:
                if attempt == ATTEMPTS - 1:
                    raise
                await self._look_again(mine)

    def _hosts(self, nodes: Iterable[str]) -> dict[str, str]:
        known = {name: self._nodes.get(name) for name in nodes}
        return {name: node.labels.get(_HOSTNAME, name) if node is not None else name for name, node in known.items()}

    async def _look_again(self, mine: Mine) -> None:
        if mine.job is not None:
            await self._hands.look_again(JOB, mine.job.facts.key)
        for pod in mine.live:
            await self._hands.look_again(POD, pod.facts.key)

    def _enforce(self, track: Track) -> None:
        """See to it that the job is as it should be; one task per job at a time."""
        if track.enforcing is None or track.enforcing.done():
            track.enforcing = asyncio.create_task(self._enforcing(track))
            track.enforcing.add_done_callback(self._enforced)

    def _enforced(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None and not self._failure.done():
            self._failure.set_exception(task.exception() or RuntimeError())

    async def _enforcing(self, track: Track) -> None:
        failures = 0
        while not track.writing:
            mine = self._mine_now(track)
            try:
                if not await self._act(track, mine):
                    return
                failures = 0
            except (ConflictError, NotThereError):
                await self._look_again_or_not(mine)
                failures += 1
            except LeadershipLostError:
                raise
            except EmuGpuError as error:
                failures += 1
                self._failed(error)
            if failures:
                await asyncio.sleep(self._tools.pauses.after(failures) if failures > 1 else 0)

    async def _look_again_or_not(self, mine: Mine) -> None:
        try:
            await self._look_again(mine)
        except EmuGpuError as error:
            self._failed(error)

    async def _act(self, track: Track, mine: Mine) -> bool:
        """One write towards what is wanted; False where all is so."""
        order = mine.order
        if order is None or _state(mine) not in HOLDS:
            return False
        if track.known in (Known.STOPPING, Known.STRANGE, Known.QUEUED):
            await ACTUATORS[order.actuator].stop(self._hands, mine)
            return True
        if track.known not in (Known.STARTING, Known.RUNNING) or track.allocation is None:
            return False
        text = noted(order, track.allocation)[0].to_json()
        note = {"metadata": {"annotations": {ALLOCATION: text}}}
        for pod in mine.live:
            if pod.allocation != text and not pod.deleting:
                await self._hands.patch(POD, pod.facts.key, note)
                return True
        if order.annotations.get(ALLOCATION) != text and mine.live:
            await self._hands.patch(EMUJOB, order.key, note)
            return True
        return False

    def _touch(self, track: Track) -> None:
        self._orders.dirty.add(track.key)
        self._changed.set()

    def _failed(self, error: EmuGpuError) -> None:
        self._tools.say(str(error))


def _state(mine: Mine) -> State:
    actuator = ACTUATORS.get(mine.order.actuator) if mine.order is not None else None
    return look(mine, actuator.look) if actuator is not None else look(mine, lambda _mine: State.UNREADY)


def _told_how(mine: Mine) -> bool:
    """Whether anything says how it is to run."""
    return any(pod.allocation for pod in mine.live) or (mine.job is not None and bool(mine.job.facts.allocation))


def _order_of_pod(pod: PodSight) -> str:
    return f"{pod.facts.key.namespace}/{pod.facts.job}"
