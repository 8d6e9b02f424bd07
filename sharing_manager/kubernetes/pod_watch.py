"""Watches the annotations by which schedulers give the pods of this node a share of its CPUs and memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from threading import Event

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.ipc.poller import CallSoon
from emulator_runtime.node.host_share import ALLOCATION_ANNOTATION, share_of_allocation
from emulator_runtime.node.layout import JOB_LABEL
from sharing_manager.devices.host_shares import HostShares
from sharing_manager.kubernetes import objects
from sharing_manager.kubernetes.api_server import ApiServer
from sharing_manager.kubernetes.objects import AllocatedPod
from sharing_manager.kubernetes.problem_log import ProblemLog
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
        pods = [objects.allocated_pod(item) for item in items]
        shares = {pod.uid: share for pod in pods if (share := self._read(pod)) is not None}
        self._poller.call_soon(partial(self._shares.set_watched, shares))
        return ""

    def changed(self, item: object, *, deleted: bool) -> None:
        """An annotation that is invalid or was removed changes nothing."""
        pod = objects.allocated_pod(item)
        if deleted:
            self._poller.call_soon(partial(self._shares.ended, pod.uid))
        elif (share := self._read(pod)) is not None:
            self._poller.call_soon(partial(self._shares.changed, pod.uid, share))


class ShareReader:
    """Reads the pods' annotations. An invalid one is logged once."""

    def __init__(self, node: str) -> None:
        self._problems = ProblemLog(f"node {node}: the pods' allocations can be read again")

    def __call__(self, pod: AllocatedPod) -> HostShare | None:
        """The share in the annotation; None if there is none, or if it is invalid."""
        if pod.allocation is None:
            return None
        try:
            share = share_of_allocation(pod.allocation, f"pod {pod.name}: annotation {ALLOCATION_ANNOTATION}")
        except InputError as error:
            self._problems.report(f"{error}; the pod keeps its present share")
            return None
        self._problems.clear()
        return share
