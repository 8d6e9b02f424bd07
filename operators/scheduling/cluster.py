"""Kubernetes as the scheduler loop's cluster: the loop's own thread asks, an event loop in another one answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.domain.job import JobSpec
from emulator_runtime.domain.units import NS_PER_S
from operators.controllers.leader_election import Leader
from operators.kube.api import EMUJOB, NODE, POOL, Api, ApiAwayError, ForbiddenError, NotThereError
from operators.scheduling.act.writer import NotYetError
from operators.scheduling.remember.handover import Handover, Written
from operators.scheduling.remember.keeper import Keeper, Saver
from operators.scheduling.see.job_objects import ScheduledEmuJob
from operators.scheduling.track.tracked_jobs import Scope
from operators.scheduling.watcher import Tools, Watcher
from scheduler_sims.clusters.base import Event, Happening, Start
from scheduler_sims.clusters.open import Submitted
from scheduler_sims.interface.plan import Allocation
from scheduler_sims.record import LagAccount

_CALL_S = 30.0
"""The longest that the loop waits for an answer of the other thread, beyond the time limits of requests. Host seconds."""
_SYNC_S = 60.0
_ENDED = (Happening.FINISHED, Happening.FAILED, Happening.REMOVED)

T = TypeVar("T")


class NoEmuJobsError(ClusterError):
    """The cluster has no EmuJobs at all: the chart isn't installed there."""

    code = "no-emujobs"


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach the API server and who may act there. Both are made in the thread that uses them."""

    api: Callable[[], Api]
    leader: Callable[[Api], Leader]
    namespace: str
    lasting_name: str


@dataclass(frozen=True, slots=True)
class Successor:
    """Who takes over: the text of --policy, the module of its class; `epoch_ns` None: as it was handed over, else now."""

    policy: str
    module: str
    epoch_ns: int | None = None


class KubernetesCluster:
    """`connect`, then a scheduler loop drives it; `close` leaves what runs alone. Emulated time is the wall clock's."""

    name = "kubernetes"

    def __init__(self, connection: Connection, scope: Scope, make_tools: Callable[[KubernetesCluster], Tools]) -> None:
        self._connection, self._scope = connection, scope
        self._inbox: SimpleQueue[list[Event] | BaseException | None] = SimpleQueue()
        self._tools = make_tools(self)
        self.event_loop = asyncio.new_event_loop()
        """Of the other thread, from `connect` to `close`."""
        self._thread = threading.Thread(target=self.event_loop.run_forever, name="kubernetes", daemon=True)
        self._present: dict[str, JobSpec] = {}
        self._ended: list[JobSpec] = []
        self._api: Api | None = None
        self._leader: Leader | None = None
        self._watcher: Watcher | None = None
        self._saver: Saver | None = None
        self._working: asyncio.Task[None] | None = None
        self.handover = Handover(0, "")

    # --- life -------------------------------------------------------------------------------------------------------

    def connect(self, successor: Successor) -> Handover:
        """Returns once it is this program's turn and all that there is has been seen; what the one before it kept.

        Raises NoEmuJobsError where the chart isn't installed, and what Api raises.
        """
        self._thread.start()
        return self._call(self._connect(successor), None)

    def prepare(self, jobs: Sequence[JobSpec]) -> None:
        """It is ready since `connect`, and jobs come by themselves."""

    def close(self) -> None:
        """What runs goes on; another scheduler of this name may act at once."""
        if self.event_loop.is_closed():
            return
        try:
            if self._thread.is_alive():
                self._call(self._disconnect())
        finally:
            if self._thread.is_alive():
                self.event_loop.call_soon_threadsafe(self.event_loop.stop)
                self._thread.join()
            self.event_loop.close()

    async def _connect(self, successor: Successor) -> Handover:
        connection, say = self._connection, self._tools.say
        self._api = connection.api()
        await _check(self._api, self._scope.namespace)
        self._leader = connection.leader(self._api)
        try:
            await self._leader.acquire(say)
        except (ForbiddenError, NotThereError) as error:
            place = f"its lease belongs into namespace {connection.namespace}; name another one with --lease-namespace"
            raise type(error)(f"{error}; {place}") from error
        keeper = Keeper(self._api, connection.namespace, connection.lasting_name)
        self._saver = Saver(keeper, lambda: self.may_act)
        kept = await keeper.load(successor.policy, successor.module)
        now_ns = self._tools.wall_ns()
        epoch_ns = (
            successor.epoch_ns if successor.epoch_ns is not None else kept.epoch_ns if kept is not None else now_ns
        )
        self.handover = Handover(epoch_ns, successor.policy)
        if kept is not None and kept.epoch_ns == epoch_ns:
            self.handover = kept
            if kept.problem:
                say(kept.problem)
        self._watcher = Watcher(self._api, self._scope, self._tools, epoch_ns, self.handover.attained)
        self._working = asyncio.create_task(self._work(self._watcher, self._leader))
        await self._until_synced(self._watcher, self._working)
        self._working.add_done_callback(self._worked)
        return self.handover

    async def _until_synced(self, watcher: Watcher, working: asyncio.Task[None]) -> None:
        """Raises what ended the work, and ApiAwayError where it takes too long."""
        synced = asyncio.create_task(watcher.synced.wait())
        try:
            await asyncio.wait({synced, working}, timeout=_SYNC_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            synced.cancel()
        if working.done() and (error := working.exception()) is not None:
            raise _first(error)
        if not watcher.synced.is_set():
            raise ApiAwayError(f"the API server has not listed within {_SYNC_S:g} s: {', '.join(watcher.unlisted)}")

    async def _work(self, watcher: Watcher, leader: Leader) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(leader.keep(self._tools.say))
            group.create_task(watcher.run())

    def _worked(self, task: asyncio.Task[None]) -> None:
        """The loop hears of it when it waits next."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._inbox.put(_first(error))

    async def _disconnect(self) -> None:
        async with AsyncExitStack() as stack:  # whatever goes wrong, another may act at once
            if (close := getattr(self._api, "close", None)) is not None:
                stack.push_async_callback(close)
            if self._leader is not None:
                stack.push_async_callback(self._leader.release)
            if self._working is not None:
                stack.push_async_callback(asyncio.wait, [self._working])
                stack.callback(self._working.cancel)
            if self._saver is not None:
                await self._saver.finish()

    # --- the loop's side --------------------------------------------------------------------------------------------

    def now_ns(self) -> int:
        return self._tools.wall_ns() - self.handover.epoch_ns

    def wait(self, until_ns: int | None) -> list[Event]:
        """Raises LeadershipLostError when another scheduler of this name may act now."""
        for left in self._ended:  # the loop has heard of their end, and asks no more
            self._tools.truth.forget(left)
        events = self._next(until_ns)
        self._ended = [job for event in events if (job := self._left_with(event)) is not None]
        return events

    def wake(self) -> None:
        """Ends a `wait`; may be called by a signal's handler."""
        self._inbox.put(None)

    def tell(self, events: list[Event]) -> None:
        """Called by the other thread."""
        self._inbox.put(events)

    def start(self, start: Start) -> None:
        self._call(self._watching.start(start))

    def stop(self, job_id: str, others: int = 0) -> None:
        self._call(self._watching.stop(job_id))

    def resize(self, job_id: str, allocation: Allocation) -> None:
        self._call(self._watching.resize(job_id, allocation))

    def steps_done(self, job_id: str) -> int:
        return self._watching.steps_done(job_id)

    def settle(self) -> None:
        """Nothing is on its way: what runs goes on without a scheduler."""

    def lag(self) -> dict[str, LagAccount]:
        return {}

    def notes(self) -> tuple[str, ...]:
        return ()

    # --- beside the loop --------------------------------------------------------------------------------------------

    @property
    def may_act(self) -> bool:
        return self._leader is not None and self._leader.holds

    @property
    def problem(self) -> str:
        """Why it isn't ready; empty also while it waits for its turn, which is all that it should do."""
        if self._leader is None:
            return "the API server has not been asked yet"
        synced = self._watcher is not None and self._watcher.synced.is_set()
        return "" if synced or not self.may_act else "not all that there is was listed yet"

    @property
    def done(self) -> int:
        """Jobs that the scope waits for and that have ended."""
        return self._watching.done

    def uid_of(self, job_id: str) -> str:
        """The EmuJob's uid of a job that the loop knows; empty where it is none."""
        return self._watching.uid_of(job_id)

    def order_of(self, job_id: str) -> ScheduledEmuJob | None:
        """The EmuJob of a job that the loop knows."""
        return self._watching.order_of(job_id)

    def annotate(self, uid: str, name: str, text: str | None) -> None:
        """Writes an annotation of an EmuJob (None removes it), in the background. May be called by any thread."""
        asyncio.run_coroutine_threadsafe(self._watching.annotate(uid, name, text), self.event_loop)

    def keep(self, handover: Handover, kept: Callable[[str], None]) -> None:
        """Writes it in the background, the newest only; `kept` gets what save answers, or why it failed.

        As it is now: the policy may change its state from the next moment on.
        """
        self.event_loop.call_soon_threadsafe(self._keep, handover, Written.of(handover), kept)

    def _keep(self, handover: Handover, state: Written, kept: Callable[[str], None]) -> None:
        if self._saver is not None:
            attained = self._watching.remember(handover.attained)
            self._saver.save(replace(handover, state=None, attained=attained), state, kept)

    @property
    def _watching(self) -> Watcher:
        assert self._watcher is not None, "connect comes first"
        return self._watcher

    def _next(self, until_ns: int | None) -> list[Event]:
        timeout_s = None if until_ns is None else max(0.0, (until_ns - self.now_ns()) / NS_PER_S)
        events: list[Event] = []
        try:
            item = self._inbox.get(timeout=timeout_s)
            while True:
                if isinstance(item, BaseException):
                    raise item
                events += item or []
                item = self._inbox.get_nowait()
        except Empty:
            return events

    def _left_with(self, event: Event) -> JobSpec | None:
        """The job that has left with this event; it may be back with the next one."""
        if isinstance(event, Submitted):
            self._present[event.job_id] = event.job.spec
        return self._present.pop(event.job_id, None) if event.what in _ENDED else None

    def _call(self, work: Coroutine[Any, Any, T], timeout_s: float | None = _CALL_S) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self.event_loop)
        try:
            return future.result(timeout_s)
        except TimeoutError as error:
            future.cancel()
            raise NotYetError(f"the API server has not answered for {_CALL_S:g} s") from error
        except BaseException:
            future.cancel()
            raise


async def _check(api: Api, namespace: str) -> None:
    """What is needed is there, and may be read."""
    for resource, within in ((EMUJOB, {"namespace": namespace}), (POOL, {}), (NODE, {})):
        try:
            await api.list(resource, **within)
        except NotThereError as error:
            problem = "this cluster knows no EmuJobs; install the chart (helm install emugpu charts/emugpu)"
            raise NoEmuJobsError(f"{problem}: {error}") from error


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
