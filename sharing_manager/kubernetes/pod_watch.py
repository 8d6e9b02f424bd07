"""Watches the annotations by which schedulers give the pods of this node CPUs, memory and devices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from threading import Event

from emulator_runtime.domain.errors import InputError
from emulator_runtime.ipc.poller import CallSoon
from emulator_runtime.node.allocation import ALLOCATION_ANNOTATION, Allocation
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
        self._read = AllocationReader(node)

    def run(self, stopping: Event) -> None:
        """Returns after `stopping` was set and the API server's client was closed."""
        self._watch.run(stopping)

    def listed(self, items: Sequence[object]) -> str:
        pods = [objects.allocated_pod(item) for item in items]
        given = {pod.uid: allocation for pod in pods if (allocation := self._read(pod)) is not None}
        self._poller.call_soon(partial(self._shares.set_watched, given))
        return ""

    def changed(self, item: object, *, deleted: bool) -> None:
        """An annotation that is invalid or was removed changes nothing."""
        pod = objects.allocated_pod(item)
        if deleted:
            self._poller.call_soon(partial(self._shares.ended, pod.uid))
        elif (allocation := self._read(pod)) is not None:
            self._poller.call_soon(partial(self._shares.changed, pod.uid, allocation))


class AllocationReader:
    """Reads the pods' annotations. An invalid one is logged once."""

    def __init__(self, node: str) -> None:
        self._problems = ProblemLog(f"node {node}: the pods' allocations can be read again")

    def __call__(self, pod: AllocatedPod) -> Allocation | None:
        """The annotation; None if there is none, or if it is invalid."""
        if pod.allocation is None:
            return None
        try:
            allocation = Allocation.from_json(pod.allocation, f"pod {pod.name}: annotation {ALLOCATION_ANNOTATION}")
        except InputError as error:
            self._problems.report(f"{error}; the pod keeps its present share")
            return None
        self._problems.clear()
        return allocation
