"""The controller of EmuJobs: follows six kinds of objects, plans for each EmuJob that has changed, writes what is planned.

Level-triggered: actions depend on the present state, not on what happened. Every write has a precondition (a uid, a version, or
that no object of this name exists), so an action that was planned on old state fails and is planned again. A change of one EmuJob
costs the same however many there are: planning a thousand of them after every change took a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from emulator_runtime.domain.errors import EmuGpuError
from emulator_runtime.profiles.table import ProfileTable
from operators.controllers.actions import Tell
from operators.controllers.events import News
from operators.controllers.leader_election import LeadershipLostError
from operators.controllers.work_queue import WorkQueue
from operators.jobs.cluster_cache import ClusterCache
from operators.jobs.creation_attempts import LASTS, CreationAttempts
from operators.jobs.manifests import Images
from operators.jobs.metrics import JobMetrics
from operators.jobs.observer import ClusterView
from operators.jobs.plan import Action, Context, CreateJob, CreateService, ResizePod, plan
from operators.jobs.resizing import Refusal
from operators.jobs.writer import write
from operators.kube.api import Api, ConflictError, NotThereError
from operators.kube.documents import Key
from operators.kube.informer import Pauses, follow
from operators.objects.emujob import EmuJob
from operators.objects.names import FINAL
from operators.results.status import Outcome

_LONGEST_WAIT_S = 60.0
"""An EmuJob that isn't over is reconciled at least this often: outcomes may change without any object's change."""
_AT_ONCE = 8
"""Number of EmuJobs that are reconciled concurrently, so that waits for the API server overlap."""


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def no_outcomes(_uid: str) -> Outcome | None:
    """Without a source besides Kubernetes."""
    return None


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Images of pods; profiles; the clock; whether the controller may act now; the outcome of a job by its EmuJob's uid; an
    observer of the cluster's state; whether the event log is connected. The last four must not block."""

    images: Images
    profiles: ProfileTable
    wall_ns: Callable[[], int]
    may_act: Callable[[], bool] = lambda: True
    outcomes: Callable[[str], Outcome | None] = no_outcomes
    observe: Callable[[ClusterView], None] = lambda _: None
    log_connected: Callable[[], bool] = lambda: True


class Controller:
    """`run` never returns; it is cancelled."""

    def __init__(self, api: Api, metrics: JobMetrics, dependencies: Dependencies, pauses: Pauses | None = None) -> None:
        self._api, self._metrics, self._dependencies = api, metrics, dependencies
        self._pauses = pauses or Pauses()
        self._queue = WorkQueue(self._pauses.settle, _now_s)
        self._cache = ClusterCache(self._queue.add, self._count, dependencies.wall_ns)
        self._synced, self._moved = asyncio.Event(), asyncio.Event()
        self._failures: dict[str, int] = {}
        self._problems: dict[str, EmuGpuError] = {}
        self._attempts = CreationAttempts(self._pauses)

    @property
    def problem(self) -> str:
        """Why Jobs may not match the EmuJobs: nothing was listed yet, or writes fail and are retried. Refused writes are reported
        in the status or events of their EmuJob."""
        if not self._synced.is_set():
            return "nothing was listed yet"
        return next((str(error) for error in self._problems.values() if error.retry_helps), "")

    def look_again(self, *uids: str) -> None:
        """Reconcile these EmuJobs (none: all) because something outside the API server has changed, such as an outcome."""
        wanted = frozenset(uids)
        for facts in self._cache.emujobs.values():
            if not wanted or facts.key.uid in wanted:
                self._queue.add(str(facts.key))

    async def run(self) -> None:
        """Raises LeadershipLostError (in a group) when it may not act any more."""
        async with asyncio.TaskGroup() as group:
            for followed in self._cache.followed:
                group.create_task(follow(self._api, followed, self._pauses, self._changed, self._metrics.failed_watch))
            group.create_task(self._look_at_cluster())
            group.create_task(self._work())

    def _changed(self) -> None:
        if self._cache.synced:
            self._synced.set()
        self._moved.set()

    async def _look_at_cluster(self) -> None:
        """Work that isn't about one EmuJob: if pools and nodes offer something else, all EmuJobs are reconciled; vanished objects
        only show in a view of the whole cluster."""
        await self._synced.wait()
        before, seen_whole_s = self._cache.offers(), float("-inf")
        while True:
            now_s = asyncio.get_running_loop().time()
            if self._cache.take_vanished() or now_s - seen_whole_s >= _LONGEST_WAIT_S:
                seen_whole_s = now_s
                self._dependencies.observe(self._cache.view(self._dependencies.wall_ns()))
            if self._cache.offers() != before:
                before = self._cache.offers()
                self.look_again()
            try:
                async with asyncio.timeout(_LONGEST_WAIT_S):
                    await self._moved.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(self._pauses.settle)
            self._moved.clear()

    async def _work(self) -> None:
        await self._synced.wait()
        slots = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            while True:
                await slots.acquire()
                key = await self._queue.take()
                group.create_task(self._look(key)).add_done_callback(lambda _: slots.release())

    async def _look(self, key: str) -> None:
        """Reconcile one EmuJob and queue it again where needed. Other objects of the same name are only observed."""
        facts, again_s = self._cache.emujobs.get(key), None
        self._dependencies.observe(self._cache.view_of(key, self._dependencies.wall_ns()))
        error: EmuGpuError | None = None
        if facts is None:
            self._attempts.forget(key)
        else:
            with self._metrics.reconciles.time():
                error, again_s = await self._reconcile(facts)
        if error is None:
            self._failures.pop(key, None)
            self._problems.pop(key, None)
        else:
            self._problems[key] = error
            self._failures[key] = self._failures.get(key, 0) + 1
            if facts is not None and self._failures[key] == LASTS and not error.retry_helps:
                await self._carry_out(facts.key, (Tell(facts.key, News("Warning", "NotCarriedOut", str(error))),))
            again_s = min(again_s or _LONGEST_WAIT_S, self._pauses.after(self._failures[key]))
        if again_s is not None:
            self._queue.add(key, again_s)
        self._queue.done(key)

    async def _reconcile(self, facts: EmuJob) -> tuple[EmuGpuError | None, float | None]:
        """The error, if any, and when to reconcile again (None: after a change)."""
        given = self._dependencies
        context = Context(self._cache.offers(), given.profiles, given.images, given.wall_ns(), given.log_connected())
        refused_creation = self._attempts.of(str(facts.key), facts.key.uid, _now_s())
        found = plan(
            facts, self._cache.observed(facts, self._dependencies.outcomes(facts.key.uid), refused_creation), context
        )
        longest = None if facts.phase in FINAL else _LONGEST_WAIT_S
        again_s = longest if found.again_s is None else min(_LONGEST_WAIT_S, max(found.again_s, 0.01))
        return await self._carry_out(facts.key, found.actions), again_s

    async def _carry_out(self, owner: Key, actions: tuple[Action, ...]) -> EmuGpuError | None:
        """Each action only after the previous one succeeded: an event reports what has been written."""
        for action in actions:
            if not self._dependencies.may_act():
                raise LeadershipLostError("another replica may act now; ending")
            if isinstance(action, ResizePod):
                if (problem := await self._resize(str(owner), action)) is not None:
                    return problem
                continue
            try:
                await self._write(action)
            except (ConflictError, NotThereError) as error:
                if isinstance(
                    action, CreateService
                ):  # a Service without our label is in the way: no watch will report its end
                    return self._failed(owner, action, error)
                return None  # what was planned is old; the watch brings what it is now
            except EmuGpuError as error:
                return self._failed(owner, action, error)
            if isinstance(action, CreateJob | CreateService):
                self._attempts.forget(str(owner))
        return None

    def _failed(self, owner: Key, action: Action, error: EmuGpuError) -> EmuGpuError | None:
        """What is worth another try soon. What isn't made isn't: its status tells, and it is said once however often it is
        asked for."""
        if not isinstance(action, CreateJob | CreateService) or error.retry_helps:
            self._metrics.failed(type(action).__name__, error)
            return error
        said = not self._attempts.note(str(owner), owner.uid, str(error), _now_s())
        self._metrics.failed(type(action).__name__, error, said=said)
        self._queue.add(str(owner))  # so that the status shows the refusal and the time of the next attempt
        return None

    async def _resize(self, name: str, action: ResizePod) -> EmuGpuError | None:
        """An error that a retry may heal. A refusal is reported in the status of the EmuJob of this name."""
        now_ns = self._dependencies.wall_ns()
        try:
            await self._write(action)
        except ConflictError as error:
            return error  # perhaps no watch event will report that a retry can succeed
        except EmuGpuError as error:
            self._metrics.failed(type(action).__name__, error)
            if error.retry_helps:
                return error
            self._cache.refusals.note(name, action.key.uid, Refusal(action.resources, str(error), now_ns))
            self._queue.add(name)
        return None

    async def _write(self, action: Action) -> None:
        """Raises what Api raises."""
        document = await write(self._api, action, self._dependencies.wall_ns())
        self._metrics.writes.labels(type(action).__name__).inc()
        if document is not None:
            self._cache.wrote(action, document)

    def _count(self, before: EmuJob | None, after: EmuJob | None) -> None:
        was, now = (facts.phase or "Pending" if facts is not None else "" for facts in (before, after))
        if was != now:
            self._metrics.moved(was, now)
