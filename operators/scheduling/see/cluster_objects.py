"""Caches of all objects that the scheduler watches, so that no decision waits for a request. Objects are found by EmuJob."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Set
from typing import Any, Generic, Protocol, TypeVar

from emulator_runtime.node.layout import JOB_LABEL
from operators.kube.api import EMUJOB, JOB, NODE, ON_NODES, POD, POOL, Resource
from operators.kube.informer import Followed
from operators.kube.store import OnChange, Store, full_name_of
from operators.objects.emujob import EmuJob
from operators.objects.job import BatchJob
from operators.objects.node import Node
from operators.objects.pod import Pod
from operators.objects.pool import Pool
from operators.scheduling.see.job_objects import JobObjects, Usage, usage_of


class JobIdentity(Protocol):
    """Identifies an EmuJob: its `uid`, and the `key` (namespace/name) under which stores find it."""

    uid: str
    key: str


class ClusterObjects:
    """One store for each kind of object.

    `usages` covers the pods of the whole cluster; the scheduler starts to work before that store is complete. `on_change` is
    called for each EmuJob that was added, changed or deleted.
    """

    def __init__(self, on_change: OnChange[EmuJob]) -> None:
        self.emujobs: DirtyStore[EmuJob] = DirtyStore(EmuJob.read, lambda emujob: str(emujob.key), on_change)
        self.jobs: DirtyStore[BatchJob] = DirtyStore(BatchJob.read, lambda job: str(job.key))
        self.pods: DirtyStore[Pod] = DirtyStore(Pod.read, lambda pod: f"{pod.key.namespace}/{pod.job}")
        self.pools: DirtyStore[Pool] = DirtyStore(Pool.read, lambda _pool: "")
        self.nodes: DirtyStore[Node] = DirtyStore(Node.read, lambda _node: "")
        self.usages: DirtyStore[Usage] = DirtyStore(usage_of, lambda usage: usage.node)

    def followed(self, namespace: str) -> tuple[Followed, ...]:
        """The watches whose first list must be complete before the scheduler acts. `namespace` empty: all namespaces."""
        within = {"namespace": namespace}
        labelled = {"labels": JOB_LABEL, **within}
        return (
            Followed(EMUJOB, self.emujobs, within),
            Followed(JOB, self.jobs, labelled),
            Followed(POD, self.pods, labelled),
            Followed(POOL, self.pools),
            Followed(NODE, self.nodes),
        )

    def followed_usages(self) -> Followed:
        """The watch of all pods that have a node."""
        return Followed(POD, self.usages, {"fields": ON_NODES})

    @property
    def written(self) -> Mapping[Resource, Store[Any]]:
        """The stores of the kinds that a scheduler writes."""
        return {EMUJOB: self.emujobs, JOB: self.jobs, POD: self.pods}

    def take_changed(self) -> set[str]:
        """The names (namespace/name) of the EmuJobs of which any object has changed since the last call."""
        return self.emujobs.take_dirty() | self.jobs.take_dirty() | self.pods.take_dirty()

    def emujob(self, job: JobIdentity) -> EmuJob | None:
        """The EmuJob with this uid; None if it was deleted, also when another EmuJob has its name now."""
        emujob = self.emujobs.get(job.key)
        return emujob if emujob is not None and emujob.key.uid == job.uid else None

    def job_objects(self, identity: JobIdentity, pods: Iterable[Pod] | None = None) -> JobObjects:
        """All objects of a job; `pods`: the job's pods, if the caller has them already."""
        job = self.jobs.get(identity.key)
        own = job if job is not None and job.owner == identity.uid and not job.deleting else None
        if pods is None:
            pods = (pod for pod in self.pods.values() if pod.emujob_uid == identity.uid)
        return JobObjects(self.emujob(identity), own, tuple(pods))

    def pods_by_emujob(self) -> Mapping[str, list[Pod]]:
        """Pods by the uid of their EmuJob; uids of EmuJobs without pods are missing."""
        pods: defaultdict[str, list[Pod]] = defaultdict(list)
        for pod in self.pods.values():
            pods[pod.emujob_uid].append(pod)
        return pods

    def used_by_others(self, own: Container[str], stray: Set[str] = frozenset()) -> Counter[str]:
        """GPUs per node used by pods of other owners, or by own EmuJobs listed in `stray`. Both are sets of EmuJob uids."""
        gpus = Counter[str]()
        for usage in self.usages.values():
            if usage.gpus and (usage.emujob_uid not in own or usage.emujob_uid in stray):
                gpus[usage.node] += usage.gpus
        return gpus

    def hosts(self, nodes: Iterable[str]) -> dict[str, str]:
        """The hostname labels of nodes, by node name."""
        known = {name: self.nodes.get(name) for name in nodes}
        return {name: node.hostname if node is not None else name for name, node in known.items()}


T = TypeVar("T")


class DirtyStore(Store[T], Generic[T]):
    """A store that collects in `dirty` the owners of changed objects; `owner_of` gives an object's owner.

    The owner of a pod is the name of its EmuJob, for example, so `dirty` names the jobs that must be looked at again.
    """

    def __init__(
        self,
        facts_of: Callable[[Mapping[str, Any]], T],
        owner_of: Callable[[T], str],
        on_change: OnChange[T] = lambda _before, _after: None,
    ) -> None:
        super().__init__(facts_of, on_change)
        self._owner_of = owner_of
        self.dirty: set[str] = set()

    def replace(self, documents: Iterable[Mapping[str, Any]], version: str = "") -> bool:
        before = self.values()
        changed = super().replace(documents, version)
        if changed:
            self.dirty.update(self._owner_of(facts) for facts in (*before, *self.values()))
        return changed

    def update(self, kind: str, document: Mapping[str, Any]) -> bool:
        before = self.get(full_name_of(document))
        changed = super().update(kind, document)
        if changed:
            self.dirty.update(
                self._owner_of(facts) for facts in (before, self.get(full_name_of(document))) if facts is not None
            )
        return changed

    def forget(self, name: str) -> None:
        facts = self.get(name)
        if facts is not None:
            self.dirty.add(self._owner_of(facts))
        super().forget(name)

    def take_dirty(self) -> set[str]:
        """The owners of objects that have changed since the last call."""
        dirty, self.dirty = self.dirty, set()
        return dirty
