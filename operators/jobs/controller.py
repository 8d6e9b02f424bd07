"""The controller of EmuJobs: follows six kinds of objects, plans for each EmuJob that has changed, writes what is planned.

Each EmuJob is reconciled by itself, so a change costs the same however many there are: planning a thousand of them after every
change took a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from prometheus_client import Gauge

from emulator_runtime.domain.errors import EmuGpuError
from emulator_runtime.profiles.table import ProfileTable
from operators.controllers.actions import Plan
from operators.controllers.loop import ControllerLoop, Failure, Reconciler, failure_of, now_s
from operators.controllers.metrics import ControllerMetrics, PhaseMetric
from operators.controllers.writer import Author
from operators.jobs.cluster_cache import ClusterCache
from operators.jobs.creation_attempts import CreationAttempts
from operators.jobs.manifests import Images
from operators.jobs.observer import ClusterView
from operators.jobs.plan import Action, Context, CreateJob, CreateService, OwnAction, ResizePod, plan
from operators.jobs.resizing import Refusal
from operators.kube.api import EMUJOB, JOB, POD_SIZE, SERVICE, Api, ConflictError, Json
from operators.kube.informer import Pauses
from operators.objects.emujob import EmuJob
from operators.objects.names import CONTAINER, FINAL, PHASES
from operators.results.status import Outcome

FIELD_MANAGER = "emugpu-operator"
"""The controller owns fields under this name (Kubernetes API concepts, server-side apply)."""
AUTHOR = Author(FIELD_MANAGER, EMUJOB, "EmuJob", "jobs")
_LONGEST_WAIT_S = 60.0
"""An EmuJob that isn't over is reconciled at least this often: outcomes may change without any object's change."""
_AT_ONCE = 8
"""Number of EmuJobs that are reconciled concurrently, so that waits for the API server overlap."""


def no_outcomes(_uid: str) -> Outcome | None:
    """Without a source besides Kubernetes."""
    return None


class JobMetrics(ControllerMetrics):
    """Metrics of every controller, and EmuJobs by phase."""

    def __init__(self) -> None:
        super().__init__("jobs", "one look at an EmuJob")
        self.leading = Gauge("emugpu_jobs_leading", "1 while this replica holds the lease", registry=self.registry)
        self.phases = PhaseMetric("emugpu_jobs", "EmuJobs", PHASES, self.registry)


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
        self._metrics, self._dependencies = metrics, dependencies
        self._loop: ControllerLoop[OwnAction] = ControllerLoop(
            api,
            metrics,
            dependencies.wall_ns,
            may_act=dependencies.may_act,
            pauses=pauses,
            workers=_AT_ONCE,
        )
        self._cache = ClusterCache(self._loop.add, self._count, dependencies.wall_ns)
        self._moved = asyncio.Event()
        self._attempts = CreationAttempts(self._loop.pauses)

    @property
    def problem(self) -> str:
        """Why Jobs may not match the EmuJobs: nothing was listed yet, or writes fail and are retried. Refused writes are reported
        in the status or events of their EmuJob."""
        return self._loop.problem

    def look_again(self, *uids: str) -> None:
        """Reconcile these EmuJobs (none: all) because something outside the API server has changed, such as an outcome."""
        wanted = frozenset(uids)
        for emujob in self._cache.emujobs.values():
            if not wanted or emujob.key.uid in wanted:
                self._loop.add(str(emujob.key))

    async def run(self) -> None:
        """Raises LeadershipLostError (in a group) when it may not act any more."""
        reconciler: Reconciler[OwnAction] = Reconciler(
            author=AUTHOR,
            followed=self._cache.followed,
            reconcile=self._reconcile,
            write=write,
            wrote=self._wrote,
            failure=self._failure,
            changed=self._moved.set,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(self._loop.run(reconciler))
            group.create_task(self._look_at_cluster())

    async def _look_at_cluster(self) -> None:
        """Work that isn't about one EmuJob: if pools and nodes offer something else, all EmuJobs are reconciled; vanished objects
        only show in a view of the whole cluster."""
        await self._loop.synced.wait()
        before, seen_whole_s = self._cache.offers(), float("-inf")
        while True:
            if self._cache.take_vanished() or now_s() - seen_whole_s >= _LONGEST_WAIT_S:
                seen_whole_s = now_s()
                self._dependencies.observe(self._cache.view(self._dependencies.wall_ns()))
            if self._cache.offers() != before:
                before = self._cache.offers()
                self.look_again()
            try:
                async with asyncio.timeout(_LONGEST_WAIT_S):
                    await self._moved.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(self._loop.pauses.settle)
            self._moved.clear()

    def _reconcile(self, key: str) -> Sequence[Plan[Action]] | None:
        """The plan of one EmuJob; None: objects of this name are only observed."""
        given = self._dependencies
        given.observe(self._cache.view_of(key, given.wall_ns()))
        emujob = self._cache.emujobs.get(key)
        if emujob is None:
            self._attempts.forget(key)
            return None
        context = Context(self._cache.offers(), given.profiles, given.images, given.wall_ns(), given.log_connected())
        refused_creation = self._attempts.of(key, emujob.key.uid, now_s())
        found = plan(emujob, self._cache.observed(emujob, given.outcomes(emujob.key.uid), refused_creation), context)
        longest_s = None if emujob.phase in FINAL else _LONGEST_WAIT_S
        again_s = longest_s if found.again_s is None else min(_LONGEST_WAIT_S, max(found.again_s, 0.01))
        return (replace(found, again_s=again_s, owner=emujob.key),)

    def _failure(self, key: str, action: Action, error: EmuGpuError) -> Failure:
        match action:
            case ResizePod():
                if isinstance(error, ConflictError) or error.retry_helps:
                    return Failure.RETRY  # perhaps no watch event will report that a retry can succeed
                refusal = Refusal(action.resources, str(error), self._dependencies.wall_ns())
                self._cache.refusals.note(key, action.key.uid, refusal)
                return Failure.REPORTED
            case CreateJob() | CreateService():
                in_the_way = isinstance(
                    action, CreateService
                )  # of a Service without our label no watch reports the end
                if not in_the_way and failure_of(key, action, error) is Failure.OUTDATED:
                    return Failure.OUTDATED
                if error.retry_helps:
                    return Failure.RETRY
                is_new = self._attempts.note(key, action.key.uid, str(error), now_s())
                return Failure.REPORTED if is_new else Failure.REPEATED
            case _:
                return failure_of(key, action, error)

    def _wrote(self, action: Action, document: Json | None) -> None:
        if isinstance(action, CreateJob | CreateService):
            self._attempts.forget(str(action.key))
        if document is not None:
            self._cache.wrote(action, document)

    def _count(self, before: EmuJob | None, after: EmuJob | None) -> None:
        was, now = (emujob.phase if emujob is not None else None for emujob in (before, after))
        self._metrics.phases.moved(was, now)


async def write(api: Api, action: OwnAction) -> Json:
    """The object after the write. Raises what Api raises."""
    match action:
        case CreateJob(_, document):
            return await api.create(JOB, dict(document), FIELD_MANAGER)
        case CreateService(_, document):
            return await api.create(SERVICE, dict(document), FIELD_MANAGER)
        case ResizePod(key, resources):
            container = {"name": CONTAINER, "resources": dict(resources)}
            metadata = {"name": key.name, "namespace": key.namespace, "uid": key.uid}
            document = {"metadata": metadata, "spec": {"containers": [container]}}
            return await api.patch(POD_SIZE, key.name, document, FIELD_MANAGER)
