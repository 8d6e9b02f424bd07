"""Who is at the other end of a socket: what the manager needs to know of a pod, and the interfaces that find it out.

Implemented by `sharing_manager.kubernetes`; a local cluster has none, there a token alone says who somebody is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from emulator_runtime.domain.errors import EmuGpuError


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """One container of one pod. `container` is "" where only the pod is known.

    `job_key` names the work across pods: "<namespace>/<Job UID>/<completion index>" for a pod of a Job, else "<pod UID>". Where
    several containers of the pod ask for devices, each has its own: the former with "/<container>" after it, or
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

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod}" + (f"/{self.container}" if self.container else "")


@dataclass(frozen=True, slots=True)
class PodAllocation:
    """The device ids that the kubelet has given to one container, as its PodResources service lists them.

    A pod without devices appears as well (resource "", no ids): so a pod whose devices are those of an init container
    is known to be there.
    """

    namespace: str
    pod: str
    container: str
    resource: str
    device_ids: frozenset[str]


class Identifier(Protocol):
    """Finds the pod of a process. All methods are called in the poller's thread and don't block."""

    def identify(self, pid: int, done: Callable[[PodIdentity | EmuGpuError], None]) -> None:
        """Call `done` once, in the poller's thread (`Poller.call_soon`), now or later; `pid` is from SO_PEERCRED."""
        ...

    def remember(self, identity: PodIdentity) -> None:
        """A pod that was known before a restart: its containers are identified without the API server's help."""
        ...


class Holders(Protocol):
    """Finds out which pods hold which devices at this moment."""

    def holding(self, done: Callable[[list[PodAllocation] | None], None]) -> None:
        """Call `done` once, later, in the poller's thread, with what the kubelet answers to a question asked from now on;
        None where it doesn't answer (it may be restarting)."""
        ...


class PodEvents(Protocol):
    """Tells the owner of a pod what happened to it (as a Kubernetes Event)."""

    def record(self, identity: PodIdentity, reason: str, note: str, *, warning: bool) -> None:
        """Queue one event; never blocks, never raises. `reason` is a CamelCase word, `note` a sentence."""
        ...
