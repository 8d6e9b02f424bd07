"""The share of the node's emulated CPUs and memory that each pod has, from the annotation that a scheduler wrote on the
pod.

A watch reports all pods and their changes. A pod may attach before the watch has reported it. Until then, the share from
the list of pods that identified it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from emulator_runtime.domain.sensitivity import HostShare


class HostShares:
    """Host shares by pod UID. `on_change` is called with each share that has changed."""

    def __init__(self) -> None:
        self._watched: dict[str, HostShare] = {}
        self._listed: Mapping[str, HostShare] = {}
        self.on_change: Callable[[str, HostShare], None] = lambda *_: None

    def of(self, pod_uid: str) -> HostShare | None:
        """The pod's share; None if it is unknown."""
        return self._watched.get(pod_uid) or self._listed.get(pod_uid)

    def set_listed(self, shares: Mapping[str, HostShare]) -> None:
        """Shares from a list of the node's pods, which may be older than those from the watch."""
        self._listed = shares

    def set_watched(self, shares: Mapping[str, HostShare]) -> None:
        """The shares of all pods at the start of the watch. Pods that aren't in it have no share any more."""
        for pod_uid in self._watched.keys() - shares.keys():
            self.ended(pod_uid)
        for pod_uid, share in shares.items():
            self.changed(pod_uid, share)

    def changed(self, pod_uid: str, share: HostShare) -> None:
        before, self._watched[pod_uid] = self.of(pod_uid), share
        if share != before:
            self.on_change(pod_uid, share)

    def ended(self, pod_uid: str) -> None:
        """The pod was deleted, or has no annotation any more. Its process keeps its share."""
        self._watched.pop(pod_uid, None)
