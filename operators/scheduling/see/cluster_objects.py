"""What a scheduler knows of the cluster, so that no decision waits for a request: all that it follows, found by EmuJob."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Set
from typing import Any, Generic, Protocol, TypeVar

from operators.kube.api import EMUJOB, JOB, NODE, ON_NODES, POD, POOL, Resource
from operators.kube.informer import Followed
from operators.kube.store import Heard, Store, full_name_of
from operators.objects.names import JOB_LABEL
from operators.objects.node import Node
from operators.objects.pool import Pool
from operators.scheduling.see.job_objects import (
    JobObjects,
    ScheduledEmuJob,
    ScheduledJob,
    ScheduledPod,
    Usage,
    order_of,
    scheduled_job,
    scheduled_pod,
    usage_of,
)


class JobIdentity(Protocol):
    """Which EmuJob: the `uid`, and the `key` (namespace/name) under which stores find it."""

    uid: str
    key: str


class ClusterObjects:
    """The stores. `usages` is of all pods of the cluster, and needn't be complete for anything to be done.

    `heard` is told of each EmuJob that is new, changed or gone.
    """

    def __init__(self, heard: Heard[ScheduledEmuJob]) -> None:
        self.orders: DirtyStore[ScheduledEmuJob] = DirtyStore(order_of, lambda order: str(order.key), heard)
        self.jobs: DirtyStore[ScheduledJob] = DirtyStore(scheduled_job, lambda job: str(job.facts.key))
        self.pods: DirtyStore[ScheduledPod] = DirtyStore(
            scheduled_pod, lambda pod: f"{pod.facts.key.namespace}/{pod.facts.job}"
        )
        self.pools: DirtyStore[Pool] = DirtyStore(Pool.read, lambda _pool: "")
        self.nodes: DirtyStore[Node] = DirtyStore(Node.read, lambda _node: "")
        self.usages: DirtyStore[Usage] = DirtyStore(usage_of, lambda usage: usage.node)

    def followed(self, namespace: str) -> tuple[Followed, ...]:
        """What must be listed before anything is done, of one namespace or all (empty)."""
        within = {"namespace": namespace}
        labelled = {"labels": JOB_LABEL, **within}
        return (
            Followed(EMUJOB, self.orders, within),
            Followed(JOB, self.jobs, labelled),
            Followed(POD, self.pods, labelled),
            Followed(POOL, self.pools),
            Followed(NODE, self.nodes),
        )

    def followed_beside(self) -> Followed:
        """Other people's pods."""
        return Followed(POD, self.usages, {"fields": ON_NODES})

    @property
    def written(self) -> Mapping[Resource, Store[Any]]:
        """The stores of what a scheduler writes."""
        return {EMUJOB: self.orders, JOB: self.jobs, POD: self.pods}

    def take_changed(self) -> set[str]:
        """The names (namespace/name) of the EmuJobs of which something has changed since the last call."""
        return self.orders.take_dirty() | self.jobs.take_dirty() | self.pods.take_dirty()

    def order(self, job: JobIdentity) -> ScheduledEmuJob | None:
        """The EmuJob itself; None where it is gone, whatever has its name now."""
        order = self.orders.get(job.key)
        return order if order is not None and order.key.uid == job.uid else None

    def job_objects(self, identity: JobIdentity, pods: Iterable[ScheduledPod] | None = None) -> JobObjects:
        """All objects of a job; `pods`: its own, where they were found already."""
        job = self.jobs.get(identity.key)
        own = job if job is not None and job.facts.owner == identity.uid and not job.facts.deleting else None
        if pods is None:
            pods = (pod for pod in self.pods.values() if pod.order == identity.uid)
        return JobObjects(self.order(identity), own, tuple(pods))

    def pods_by_order(self) -> Mapping[str, list[ScheduledPod]]:
        """By the EmuJob's uid; a missing one has none."""
        found: defaultdict[str, list[ScheduledPod]] = defaultdict(list)
        for pod in self.pods.values():
            found[pod.order].append(pod)
        return found

    def used_by_others(self, own: Container[str], stray: Set[str] = frozenset()) -> Counter[str]:
        """GPUs by node that pods have which aren't of one's own EmuJobs (by uid), or of those of them that are `stray`."""
        found = Counter[str]()
        for usage in self.usages.values():
            if usage.gpus and (usage.order not in own or usage.order in stray):
                found[usage.node] += usage.gpus
        return found

    def hosts(self, nodes: Iterable[str]) -> dict[str, str]:
        """The hostname labels of nodes, by name."""
        known = {name: self.nodes.get(name) for name in nodes}
        return {name: node.hostname if node is not None else name for name, node in known.items()}


T = TypeVar("T")


class DirtyStore(Store[T], Generic[T]):
    """`owner_of` says by facts under which name a change is noted in `dirty` (an EmuJob's name, for its pods)."""

    def __init__(
        self,
        facts_of: Callable[[Mapping[str, Any]], T],
        owner_of: Callable[[T], str],
        heard: Heard[T] = lambda _before, _after: None,
    ) -> None:
        super().__init__(facts_of, heard)
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
        """What has changed since the last call."""
        found, self.dirty = self.dirty, set()
        return found
