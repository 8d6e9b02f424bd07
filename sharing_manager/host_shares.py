"""Which share of the node's emulated CPUs and memory each pod has: what a scheduler wrote on the pod, as far as it was heard.

A watch tells of all pods and their changes. A pod may attach before the watch has brought it, so what was seen of it when it
was identified counts until then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from emulator_runtime.domain.sensitivity import HostShare


class HostShares:
    """By the pod's UID. `on_change` is told of each share that is another from now on."""

    def __init__(self) -> None:
        self._watched: dict[str, HostShare] = {}
        self._glimpsed: Mapping[str, HostShare] = {}
        self.on_change: Callable[[str, HostShare], None] = lambda *_: None

    def of(self, pod_uid: str) -> HostShare | None:
        """None: nothing was said of this pod."""
        return self._watched.get(pod_uid) or self._glimpsed.get(pod_uid)

    def glimpsed(self, shares: Mapping[str, HostShare]) -> None:
        """What another look at the node's pods brought, which may be older than what the watch told."""
        self._glimpsed = shares

    def watched(self, shares: Mapping[str, HostShare]) -> None:
        """All pods with a share, as the watch begins; the others have none any more."""
        for pod_uid in self._watched.keys() - shares.keys():
            self.ended(pod_uid)
        for pod_uid, share in shares.items():
            self.changed(pod_uid, share)

    def changed(self, pod_uid: str, share: HostShare) -> None:
        before, self._watched[pod_uid] = self.of(pod_uid), share
        if share != before:
            self.on_change(pod_uid, share)

    def ended(self, pod_uid: str) -> None:
        """The pod is gone, or nothing is said of it any more: its process goes on with what it has."""
        self._watched.pop(pod_uid, None)
