"""Watches the allocations that job-level schedulers write on the pods of this node, as an annotation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Event

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.ipc.poller import CallSoon
from emulator_runtime.node.host_share import ALLOCATION_ANNOTATION, share_of_allocation
from sharing_manager.devices.host_shares import HostShares
from sharing_manager.kubernetes import objects
from sharing_manager.kubernetes.api_server import ApiServer
from sharing_manager.kubernetes.objects import JOB_LABEL, PodNotes
from sharing_manager.kubernetes.problem_log import Complaint
from sharing_manager.kubernetes.watching import Watch


class PodWatch:
    """Reports every pod of the node that belongs to an EmuJob to `shares`, in the poller's thread."""

    def __init__(self, api: ApiServer, node: str, poller: CallSoon, shares: HostShares) -> None:
        self._poller, self._shares = poller, shares
        query = {"fieldSelector": f"spec.nodeName={node}", "labelSelector": JOB_LABEL}
        self._watch = Watch(api, node, self, path="/api/v1/pods", query=query, what="the allocations of its pods")
        self._read = ShareReader(node)

    def run(self, stopping: Event) -> None:
        """Returns after `stopping` was set and the API server's client was closed."""
        self._watch.run(stopping)

    def listed(self, items: Sequence[object]) -> str:
        pods = [objects.pod_notes(item) for item in items]
        shares = {pod.uid: share for pod in pods if (share := self._read(pod)) is not None}
        self._tell(partial(self._shares.watched, shares))
        return ""

    def changed(self, item: object, *, deleted: bool) -> None:
        """An annotation that is invalid or was removed changes nothing."""
        pod = objects.pod_notes(item)
        if deleted:
            self._tell(partial(self._shares.ended, pod.uid))
        elif (share := self._read(pod)) is not None:
            self._tell(partial(self._shares.changed, pod.uid, share))

    def _tell(self, news: Callable[[], None]) -> None:
        self._poller.call_soon(news)


class ShareReader:
    """Reads the pods' annotations. An invalid one is logged once."""

    def __init__(self, node: str) -> None:
        self._complaint = Complaint(f"node {node}: the pods' allocations can be read again")

    def __call__(self, pod: PodNotes) -> HostShare | None:
        """The share in the annotation; None if there is none, or if it is invalid."""
        if pod.allocation is None:
            return None
        try:
            share = share_of_allocation(pod.allocation, f"pod {pod.name}: annotation {ALLOCATION_ANNOTATION}")
        except InputError as error:
            self._complaint.say(f"{error}; the pod's process goes on with the share that it has")
            return None
        self._complaint.over()
        return share
