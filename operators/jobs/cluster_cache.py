"""The objects that the controller follows, and which EmuJob each change is about, so that a change costs one reconciliation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from emulator_runtime.node.layout import JOB_LABEL
from operators.controllers.actions import SuspendJob, WriteStatus
from operators.fitting.offers import NodeOffer, offers_of
from operators.jobs.creation_attempts import RefusedCreation
from operators.jobs.observer import ClusterView
from operators.jobs.plan import Action, CreateJob, CreateService, Observed, ResizePod
from operators.jobs.resizing import ResizeRefusals
from operators.kube.api import EMUJOB, JOB, NODE, POD, POOL, SERVICE, Json
from operators.kube.documents import Key
from operators.kube.informer import Followed
from operators.kube.store import Index, OnChange, Store
from operators.objects.emujob import EmuJob
from operators.objects.job import BatchJob, Service
from operators.objects.node import Node
from operators.objects.pod import Pod
from operators.objects.pool import Pool
from operators.results.status import Outcome

Named = EmuJob | BatchJob | Service
"""Objects that have their EmuJob's name."""


class ClusterCache:
    """Caches of six kinds. `queue` is called with the namespace/name of each EmuJob that a change is about, `on_change` with each
    EmuJob before and after a change."""

    def __init__(self, queue: Callable[[str], None], on_change: OnChange[EmuJob], wall_ns: Callable[[], int]) -> None:
        self._queue, self._on_change = queue, on_change
        self._pods_of: Index[Pod] = Index(_job_of)
        self.emujobs: Store[EmuJob] = Store(lambda d: EmuJob.read(d, wall_ns()), self._changed_emujob)
        self.jobs: Store[BatchJob] = Store(lambda d: BatchJob.read(d, wall_ns()), self._changed_job)
        self.pods: Store[Pod] = Store(lambda d: pod_of_interest(d, wall_ns()), self._changed_pod)
        self.services: Store[Service] = Store(Service.read, self._changed_named)
        self.pools: Store[Pool] = Store(Pool.read, self._changed_place)
        self.nodes: Store[Node] = Store(Node.read, self._changed_place)
        self.refusals = ResizeRefusals()
        self._vanished = False
        self._offers: tuple[NodeOffer, ...] | None = None
        self.followed = (
            Followed(EMUJOB, self.emujobs),
            Followed(JOB, self.jobs),
            Followed(POD, self.pods),  # plain pods with emulated GPUs have no label of emugpu
            Followed(SERVICE, self.services, {"labels": JOB_LABEL}),
            Followed(POOL, self.pools),
            Followed(NODE, self.nodes),
        )

    @property
    def synced(self) -> bool:
        """Whether each kind was listed once: before that a missing object may exist."""
        return all(followed.store.synced for followed in self.followed)

    def offers(self) -> Sequence[NodeOffer]:
        """The present offers of the pools' nodes."""
        if self._offers is None:
            self._offers = offers_of(self.pools.values(), self.nodes.values())
        return self._offers

    def observed(
        self, facts: EmuJob, outcome: Outcome | None, refused_creation: RefusedCreation | None = None
    ) -> Observed:
        """The objects that belong to this EmuJob's name."""
        name = str(facts.key)
        pods, has_service = tuple(self._pods_of.get(name)), self.services.get(name) is not None
        return Observed(self.jobs.get(name), pods, has_service, outcome, self.refusals.of(name, pods), refused_creation)

    def view(self, now_ns: int) -> ClusterView:
        """All objects."""
        return ClusterView(self.emujobs.values(), self.jobs.values(), self.pods.values(), self.offers(), now_ns)

    def view_of(self, name: str, now_ns: int) -> ClusterView:
        """The objects of this name, and the pods of the EmuJob of this name."""
        emujob, job, pod = self.emujobs.get(name), self.jobs.get(name), self.pods.get(name)
        pods = [*self._pods_of.get(name), *([pod] if pod is not None and not pod.job else [])]
        emujobs, jobs = [emujob] if emujob is not None else [], [job] if job is not None else []
        return ClusterView(emujobs, jobs, pods, self.offers(), now_ns, whole=False)

    def take_vanished(self) -> bool:
        """Whether an object with results has disappeared since the last call."""
        vanished, self._vanished = self._vanished, False
        return vanished

    def wrote(self, action: Action, document: Json) -> None:
        """Take the API server's answer to a write; the watch event that follows changes nothing then."""
        store: Store[Any] | None = None
        match action:
            case WriteStatus():
                store = self.emujobs
            case CreateJob() | SuspendJob():
                store = self.jobs
            case CreateService():
                store = self.services
            case ResizePod():
                store = self.pods
        if store is not None:
            store.update("MODIFIED", document)

    def _changed_emujob(self, before: EmuJob | None, after: EmuJob | None) -> None:
        self._on_change(before, after)
        self._vanished |= after is None
        if after is None and before is not None:
            self.refusals.of(str(before.key), ())
        self._changed_named(before, after)

    def _changed_job(self, before: BatchJob | None, after: BatchJob | None) -> None:
        self._vanished |= after is None and before is not None and bool(before.demand.containers)
        self._changed_named(before, after)

    def _changed_pod(self, before: Pod | None, after: Pod | None) -> None:
        self._pods_of.update(before, after)
        pods = [pod for pod in (before, after) if pod is not None]
        if after is None or after.over:  # a pod of an existing EmuJob is reported with that
            self._vanished |= any(_matters(pod) and self.emujobs.get(_job_of(pod)) is None for pod in pods)
        for name in {_job_of(pod) or (str(pod.key) if _matters(pod) else "") for pod in pods} - {""}:
            self._queue(name)

    def _changed_named(self, before: Named | None, after: Named | None) -> None:
        found = after or before
        if found is not None:
            self._queue(str(found.key))

    def _changed_place(self, _before: object, _after: object) -> None:
        self._offers = None


def pod_of_interest(document: Mapping[str, Any], seen_ns: int) -> Pod:
    """Of a pod that has nothing to do with emugpu only the name, so that none of its changes queues anything."""
    pod = Pod.read(document, seen_ns)
    return pod if _matters(pod) else Pod(Key(pod.key.namespace, pod.key.name, pod.key.uid))


def _matters(pod: Pod) -> bool:
    return bool(pod.demand.containers or pod.job)


def _job_of(pod: Pod) -> str:
    return f"{pod.key.namespace}/{pod.job}" if pod.job else ""
