"""The loop of every controller: watches fill caches, a change queues a key, a worker reconciles it and carries out the plans.

    API server --watch--> caches --> queue of keys --> reconcile(key) --> plans --> writes --> API server
                                          ^                                           |
                                          +--- again_s, or a pause after a failure ---+

Level-triggered: plans depend on the present state, not on what happened. Every write has a precondition (a uid, a version, or
that no object of this name exists), so a plan that was made from an outdated cache fails and is made again. Lost or repeated
events, restarts and a second controller for a moment do no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from emulator_runtime.domain.errors import EmuGpuError
from operators.controllers.actions import NOT_CARRIED_OUT, CommonAction, Plan, RecordEvent, label_of
from operators.controllers.events import Event
from operators.controllers.leader_election import LeadershipLostError
from operators.controllers.metrics import ControllerMetrics
from operators.controllers.work_queue import WorkQueue
from operators.controllers.writer import Author, write_common
from operators.kube.api import Api, ConflictError, Json, NotThereError
from operators.kube.informer import Followed, Pauses, follow

A = TypeVar("A")

LASTING = 2
"""After this many consecutive failures a problem is reported as an event."""


class Failure(Enum):
    """What to do about a write that failed. The rest of its plan is dropped in each case."""

    OUTDATED = "the object has changed: its watch event queues the key"
    RETRY = "count and log it, and queue the key with a growing pause"
    REPORTED = "count and log it, and queue the key at once: the next status reports it"
    REPEATED = "as REPORTED, but it was logged before"


def failure_of(_key: str, _action: object, error: EmuGpuError) -> Failure:
    """Unless a controller knows better."""
    return Failure.OUTDATED if isinstance(error, ConflictError | NotThereError) else Failure.RETRY


@dataclass(frozen=True, slots=True)
class Reconciler(Generic[A]):
    """What differs between controllers.

    `followed`: the kinds of objects, with their caches. `reconcile`: the plans for a key, which don't wait for each other; None:
    there is nothing of this key any more. `write`: performs an action of this controller. `wrote`: called with each action
    after its write. `failure`: what to do about a failed write. `changed`: called after each change of a cache.
    """

    author: Author
    followed: Sequence[Followed]
    reconcile: Callable[[str], Sequence[Plan[A | CommonAction]] | None]
    write: Callable[[Api, A], Awaitable[Json | None]]
    wrote: Callable[[A | CommonAction, Json | None], None] = lambda _action, _document: None
    failure: Callable[[str, A | CommonAction, EmuGpuError], Failure] = failure_of
    changed: Callable[[], None] = lambda: None


@dataclass(slots=True)
class _Failures:
    """The consecutive failures of a key, and of each owner of its plans; the present errors."""

    times: int = 0
    of_owner: dict[str, int] = field(default_factory=dict)
    unreported: list[EmuGpuError] = field(default_factory=list)
    """Errors that concern the controller as a whole, not one object."""


class ControllerLoop(Generic[A]):
    """`add` queues a key, `run` never returns. `may_act`: asked before each write. `workers`: keys reconciled concurrently."""

    def __init__(
        self,
        api: Api,
        metrics: ControllerMetrics,
        wall_ns: Callable[[], int],
        *,
        may_act: Callable[[], bool] = lambda: True,
        pauses: Pauses | None = None,
        workers: int = 1,
    ) -> None:
        self._api, self._metrics, self._wall_ns, self._may_act = api, metrics, wall_ns, may_act
        self.pauses = pauses or Pauses()
        self._workers = workers
        self._queue = WorkQueue(self.pauses.settle, now_s)
        self._failures: dict[str, _Failures] = {}
        self.synced = asyncio.Event()
        """Set once each kind was listed: before that a missing object may exist."""

    @property
    def problem(self) -> str:
        """Why the cluster may not be as its objects demand; empty: it is. An error that events report on their object, and that
        a retry doesn't help, isn't the controller's problem."""
        if not self.synced.is_set():
            return "nothing was listed yet"
        return next((str(error) for failures in self._failures.values() for error in failures.unreported), "")

    def add(self, key: str, after_s: float = 0.0) -> None:
        """Reconcile this key in `after_s` seconds at the latest."""
        self._queue.add(key, after_s)

    async def run(self, reconciler: Reconciler[A]) -> None:
        """Raises LeadershipLostError (in a group) when `may_act` says no."""

        def changed() -> None:
            if all(followed.store.synced for followed in reconciler.followed):
                self.synced.set()
            reconciler.changed()

        async with asyncio.TaskGroup() as group:
            for followed in reconciler.followed:
                group.create_task(follow(self._api, followed, self.pauses, changed, self._metrics.failed_watch))
            group.create_task(self._work(reconciler))

    async def _work(self, reconciler: Reconciler[A]) -> None:
        await self.synced.wait()
        slots = asyncio.Semaphore(self._workers)
        async with asyncio.TaskGroup() as group:
            while True:
                await slots.acquire()
                key = await self._queue.take()
                group.create_task(self._reconcile(key, reconciler)).add_done_callback(lambda _: slots.release())

    async def _reconcile(self, key: str, reconciler: Reconciler[A]) -> None:
        began_s = now_s()
        plans = reconciler.reconcile(key)
        if plans is None:
            self._failures.pop(key, None)
        else:
            failed: list[tuple[Plan[A | CommonAction], EmuGpuError]] = []
            for plan in plans:
                if (error := await self._carry_out(key, plan, reconciler)) is not None:
                    failed.append((plan, error))
            self._metrics.reconciles.observe(now_s() - began_s)
            again = [plan.again_s for plan in plans if plan.again_s is not None]
            if failed:
                again.append(self.pauses.after(await self._note_failures(key, failed, reconciler)))
            else:
                self._failures.pop(key, None)
            if again:
                self._queue.add(key, min(again))
        self._queue.done(key)

    async def _carry_out(self, key: str, plan: Plan[A | CommonAction], reconciler: Reconciler[A]) -> EmuGpuError | None:
        """The error that a retry may heal, if any."""
        for action in plan.actions:
            if not self._may_act():
                raise LeadershipLostError("another replica may act now; ending")
            try:
                if isinstance(action, CommonAction):
                    document = await write_common(self._api, action, reconciler.author, self._wall_ns())
                else:
                    document = await reconciler.write(self._api, action)
            except EmuGpuError as error:
                failure = reconciler.failure(key, action, error)
                if failure is Failure.OUTDATED:
                    return None
                self._metrics.failed(label_of(action), error, said=failure is Failure.REPEATED)
                if failure is Failure.RETRY:
                    return error
                self._queue.add(key)
                return None
            self._metrics.writes.labels(label_of(action)).inc()
            reconciler.wrote(action, document)
        return None

    async def _note_failures(
        self, key: str, failed: Sequence[tuple[Plan[A | CommonAction], EmuGpuError]], reconciler: Reconciler[A]
    ) -> int:
        """The number of consecutive failures. A lasting error that a retry doesn't help becomes an event of its object."""
        before = self._failures.get(key, _Failures())
        after = self._failures[key] = _Failures(before.times + 1)
        for plan, error in failed:
            if plan.owner is None or error.retry_helps:
                after.unreported.append(error)
            if plan.owner is None:
                continue
            times = after.of_owner[plan.owner.uid] = before.of_owner.get(plan.owner.uid, 0) + 1
            if times == LASTING and not error.retry_helps:
                event = RecordEvent(plan.owner, Event("Warning", NOT_CARRIED_OUT, str(error)))
                await self._carry_out(key, Plan((event,)), reconciler)
        return after.times


def now_s() -> float:
    """Seconds of the event loop's clock."""
    return asyncio.get_running_loop().time()
