"""Kubernetes as the scheduler loop's cluster: the loop's thread calls, an asyncio event loop in a second thread answers."""

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
from operators.objects.emujob import EmuJob
from operators.scheduling.act.writer import NotYetError
from operators.scheduling.remember.handover import EncodedState, Handover
from operators.scheduling.remember.keeper import Keeper, Saver
from operators.scheduling.track.tracked_jobs import Scope
from operators.scheduling.watcher import Dependencies, Watcher
from scheduler_sims.clusters.base import Capabilities, Event, Happening, Start
from scheduler_sims.clusters.open import Submitted
from scheduler_sims.interface.plan import Allocation
from scheduler_sims.record import LagAccount

_CALL_S = 30.0
"""How long the loop waits for an answer of the asyncio thread; longer than the time limit of a request. Host seconds."""
_SYNC_S = 60.0
"""How long `connect` waits for the first lists. Host seconds."""
_ENDED = (Happening.FINISHED, Happening.FAILED, Happening.REMOVED)

T = TypeVar("T")


class NoEmuJobsError(ClusterError):
    """The API server has no resource EmuJob: the chart isn't installed there."""

    code = "no-emujobs"


@dataclass(frozen=True, slots=True)
class Connection:
    """Creates the API client and the leader election, in the thread that uses them.

    `lasting_name`: the name of Lease and ConfigMap, in `namespace`.
    """

    api: Callable[[], Api]
    leader: Callable[[Api], Leader]
    namespace: str
    lasting_name: str


@dataclass(frozen=True, slots=True)
class Successor:
    """What identifies this scheduler to the handover of its predecessor: `policy` is the text of --policy, `module` the module of
    its class. `epoch_ns` None: that of the handover, or now if there is none."""

    policy: str
    module: str
    epoch_ns: int | None = None


class KubernetesCluster:
    """Call `connect`, then run a scheduler loop on it; `close` lets jobs run on. Emulated time passes as the wall clock does."""

    name = "kubernetes"

    def __init__(
        self, connection: Connection, scope: Scope, make_dependencies: Callable[[KubernetesCluster], Dependencies]
    ) -> None:
        self._connection, self._scope = connection, scope
        self._inbox: SimpleQueue[list[Event] | BaseException | None] = SimpleQueue()
        self._dependencies = make_dependencies(self)
        self.event_loop = asyncio.new_event_loop()
        """Runs in the asyncio thread, from `connect` to `close`."""
        self._thread = threading.Thread(target=self.event_loop.run_forever, name="kubernetes", daemon=True)
        self._jobs_in_loop: dict[str, JobSpec] = {}
        self._ended: list[JobSpec] = []
        self._api: Api | None = None
        self._leader: Leader | None = None
        self._watcher: Watcher | None = None
        self._saver: Saver | None = None
        self._watching_task: asyncio.Task[None] | None = None
        self.handover = Handover(0, "")

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(self._running_watcher.sharing, any_batch=False)

    # --- life -------------------------------------------------------------------------------------------------------

    def connect(self, successor: Successor) -> Handover:
        """Waits for the lease and for the first lists; returns the handover of the preceding scheduler.

        Raises NoEmuJobsError if the chart isn't installed, and what Api raises.
        """
        self._thread.start()
        return self._call(self._connect(successor), None)

    def prepare(self, jobs: Sequence[JobSpec]) -> None:
        """Does nothing: jobs arrive as events."""

    def close(self) -> None:
        """Releases the lease, so that another scheduler of this name may act at once. Jobs run on."""
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
        connection, say = self._connection, self._dependencies.say
        self._api = connection.api()
        await _check(self._api, self._scope.namespace)
        self._leader = connection.leader(self._api)
        try:
            await self._leader.acquire(say)
        except (ForbiddenError, NotThereError) as error:
            place = (
                f"the scheduler's lease is in namespace {connection.namespace}; name another one with --lease-namespace"
            )
            raise type(error)(f"{error}; {place}") from error
        keeper = Keeper(self._api, connection.namespace, connection.lasting_name)
        self._saver = Saver(keeper, lambda: self.may_act)
        kept = await keeper.load(successor.policy, successor.module)
        now_ns = self._dependencies.wall_ns()
        epoch_ns = (
            successor.epoch_ns if successor.epoch_ns is not None else kept.epoch_ns if kept is not None else now_ns
        )
        self.handover = Handover(epoch_ns, successor.policy)
        if kept is not None and kept.epoch_ns == epoch_ns:
            self.handover = kept
            if kept.problem:
                say(kept.problem)
        self._watcher = Watcher(self._api, self._scope, self._dependencies, epoch_ns, self.handover.attained)
        self._watching_task = asyncio.create_task(self._work(self._watcher, self._leader))
        await self._until_synced(self._watcher, self._watching_task)
        self._watching_task.add_done_callback(self._work_ended)
        return self.handover

    async def _until_synced(self, watcher: Watcher, working: asyncio.Task[None]) -> None:
        """Raises the error that ended the watcher, and ApiAwayError if the first lists take longer than _SYNC_S."""
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
            group.create_task(leader.keep(self._dependencies.say))
            group.create_task(watcher.run())

    def _work_ended(self, task: asyncio.Task[None]) -> None:
        """Passes the watcher's error to the loop's next `wait`."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._inbox.put(_first(error))

    async def _disconnect(self) -> None:
        async with AsyncExitStack() as stack:  # the lease is released whatever fails
            if self._api is not None:
                stack.push_async_callback(self._api.close)
            if self._leader is not None:
                stack.push_async_callback(self._leader.release)
            if self._watching_task is not None:
                stack.push_async_callback(asyncio.wait, [self._watching_task])
                stack.callback(self._watching_task.cancel)
            if self._saver is not None:
                await self._saver.finish()

    # --- the loop's side --------------------------------------------------------------------------------------------

    def now_ns(self) -> int:
        return self._dependencies.wall_ns() - self.handover.epoch_ns

    def wait(self, until_ns: int | None) -> list[Event]:
        """Raises LeadershipLostError when another scheduler of this name may act now."""
        for spec in self._ended:  # the loop has processed their ends and doesn't need their times any more
            self._dependencies.truth.forget(spec)
        events = self._next(until_ns)
        self._ended = [job for event in events if (job := self._ended_by(event)) is not None]
        return events

    def wake(self) -> None:
        """Ends a `wait`; signal handlers may call it."""
        self._inbox.put(None)

    def deliver(self, events: list[Event]) -> None:
        """Passes events to the loop's next `wait`. Called by the asyncio thread."""
        self._inbox.put(events)

    def start(self, start: Start) -> None:
        self._call(self._running_watcher.start(start))

    def stop(self, job_id: str, others: int = 0) -> None:
        self._call(self._running_watcher.stop(job_id))

    def resize(self, job_id: str, allocation: Allocation) -> None:
        self._call(self._running_watcher.resize(job_id, allocation))

    def steps_done(self, job_id: str) -> int:
        return self._running_watcher.steps_done(job_id)

    def settle(self) -> None:
        """Does nothing: jobs run on without a scheduler."""

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
        """Why the scheduler isn't ready; empty if it is, or while another one of this name holds the lease."""
        if self._leader is None:
            return "the API server has not been contacted yet"
        synced = self._watcher is not None and self._watcher.synced.is_set()
        return "" if synced or not self.may_act else "the first lists of the API server are not complete yet"

    @property
    def done(self) -> int:
        """How many of the jobs of `Scope.until` have ended."""
        return self._running_watcher.done

    def uid_of(self, job_id: str) -> str:
        """The EmuJob's uid; empty if the loop doesn't have the job."""
        return self._running_watcher.uid_of(job_id)

    def emujob_of(self, job_id: str) -> EmuJob | None:
        """The EmuJob; None if it was deleted or the loop doesn't have the job."""
        return self._running_watcher.emujob_of(job_id)

    def annotate(self, uid: str, name: str, text: str | None) -> None:
        """Writes an annotation of an EmuJob in the background; None removes it. Any thread may call it."""
        asyncio.run_coroutine_threadsafe(self._running_watcher.annotate(uid, name, text), self.event_loop)

    def keep(self, handover: Handover, kept: Callable[[str], None]) -> None:
        """Writes the handover in the background, the newest only; `kept` gets the problem, or "" if there is none.

        The state is encoded before this returns, since the policy may change it afterwards.
        """
        self.event_loop.call_soon_threadsafe(self._keep, handover, EncodedState.of(handover), kept)

    def _keep(self, handover: Handover, state: EncodedState, kept: Callable[[str], None]) -> None:
        if self._saver is not None:
            attained = self._running_watcher.remember(handover.attained)
            self._saver.save(replace(handover, state=None, attained=attained), state, kept)

    @property
    def _running_watcher(self) -> Watcher:
        assert self._watcher is not None, "call connect first"
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

    def _ended_by(self, event: Event) -> JobSpec | None:
        """The job that leaves the loop with this event; a later event may submit it again."""
        if isinstance(event, Submitted):
            self._jobs_in_loop[event.job_id] = event.job.spec
        return self._jobs_in_loop.pop(event.job_id, None) if event.what in _ENDED else None

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
    """Verifies that the resources exist and may be read."""
    for resource, within in ((EMUJOB, {"namespace": namespace}), (POOL, {}), (NODE, {})):
        try:
            await api.list(resource, **within)
        except NotThereError as error:
            problem = "this cluster has no resource EmuJob; install the chart (helm install emugpu charts/emugpu)"
            raise NoEmuJobsError(f"{problem}: {error}") from error


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
