"""What its scheduler gave each pod of the node, from the annotation on the pod: CPUs and memory, and perhaps devices.

A watch reports all pods and their changes. A pod may attach before the watch has reported it. Until then, the annotation from
the list of pods that identified it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.node.allocation import Allocation


class HostShares:
    """Allocations by pod UID. `on_change` is called with each share of CPUs and memory that has changed."""

    def __init__(self) -> None:
        self._watched: dict[str, Allocation] = {}
        self._listed: Mapping[str, Allocation] = {}
        self.on_change: Callable[[str, HostShare], None] = lambda *_: None

    def allocation_of(self, pod_uid: str) -> Allocation | None:
        """What the pod was given; None if it is unknown."""
        return self._watched.get(pod_uid) or self._listed.get(pod_uid)

    def of(self, pod_uid: str) -> HostShare | None:
        """The pod's share of CPUs and memory; None if it is unknown."""
        allocation = self.allocation_of(pod_uid)
        return None if allocation is None else allocation.host

    def set_listed(self, allocations: Mapping[str, Allocation]) -> None:
        """Those from a list of the node's pods, which may be older than those from the watch."""
        self._listed = allocations

    def set_watched(self, allocations: Mapping[str, Allocation]) -> None:
        """Those of all pods at the start of the watch. Pods that aren't in it have none any more."""
        for pod_uid in self._watched.keys() - allocations.keys():
            self.ended(pod_uid)
        for pod_uid, allocation in allocations.items():
            self.changed(pod_uid, allocation)

    def changed(self, pod_uid: str, allocation: Allocation) -> None:
        before, self._watched[pod_uid] = self.of(pod_uid), allocation
        if allocation.host != before:
            self.on_change(pod_uid, allocation.host)

    def ended(self, pod_uid: str) -> None:
        """The pod was deleted, or has no annotation any more. Its process keeps its share."""
        self._watched.pop(pod_uid, None)
