"""The identity of a peer: the pod and container of a process, and the interfaces that find them.

`sharing_manager.kubernetes` implements them. A local cluster doesn't: there the token alone identifies a job.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from emulator_runtime.domain.errors import EmuGpuError


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """One container of one pod. `container` is "" if only the pod is known.

    `job_key` identifies a job across its pods: "<namespace>/<Job UID>/<completion index>" for a pod of a Job, else "<pod UID>".
    If several containers of a pod request devices, each is a job of its own: "<key of the Job>/<container>", or
    "<namespace>/<pod UID>/<container>". A pod's creator can claim any Job UID and index; the API server guarantees the namespace.
    An `init_container` is not among the containers that the kubelet's PodResources service lists.
    """

    pod_uid: str
    container_id: str
    namespace: str
    pod: str
    container: str
    job_key: str
    init_container: bool = False

    @property
    def work(self) -> str:
        """What the pods of a Job have in common: "<namespace>/<Job UID>"; "" for a pod without a Job."""
        namespace, _, rest = self.job_key.partition("/")
        return f"{namespace}/{rest.partition('/')[0]}" if rest else ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod}" + (f"/{self.container}" if self.container else "")


@dataclass(frozen=True, slots=True)
class PodAllocation:
    """The device ids that the kubelet allocated to one container, as its PodResources service lists them.

    A pod without devices has one entry with resource "" and no ids: a pod whose init container has devices exists, though the
    kubelet doesn't list that container.
    """

    namespace: str
    pod: str
    container: str
    resource: str
    device_ids: frozenset[str]


class Identifier(Protocol):
    """Finds the pod of a process. All methods are called in the poller's thread and don't block."""

    def identify(self, pid: int, done: Callable[[PodIdentity | EmuGpuError], None]) -> None:
        """Call `done` once, in the poller's thread (`Poller.call_soon`), now or later. `pid` comes from SO_PEERCRED."""
        ...

    def remember(self, identity: PodIdentity) -> None:
        """Add a pod that was known before a restart, so that its containers can be identified without the API server."""
        ...


class AllocationLister(Protocol):
    """Lists which pods hold which devices."""

    def list_allocations(self, done: Callable[[list[PodAllocation] | None], None]) -> None:
        """Call `done` once, later, in the poller's thread, with a list that the kubelet sends after this call; with None
        if the kubelet doesn't answer (it may be restarting)."""
        ...


class PodEvents(Protocol):
    """Reports events to the owner of a pod, as Kubernetes Events."""

    def record(self, identity: PodIdentity, reason: str, note: str, *, warning: bool) -> None:
        """Queue one event; never blocks, never raises. `reason` is a CamelCase word, `note` a sentence."""
        ...
