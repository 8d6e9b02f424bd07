"""Which container a peer of the socket is, without asking anybody: its cgroup says enough to tell it from the others.

A look costs 30 us, and who connects again and again would make it be looked again and again; so what was seen is kept for a
second, in which the kernel doesn't give a process id to somebody else.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.ipc.poller import Peer
from emulator_runtime.timing.host import monotonic_ns
from sharing_manager.kubernetes import cgroup

KEEP_NS = NS_PER_S


class PeerNames:
    """Names of peers, equal for the processes of one container."""

    def __init__(self, now: Callable[[], int] = monotonic_ns, proc: Path = Path("/proc")) -> None:
        self._now, self._proc = now, proc
        self._seen: dict[int, str] = {}
        self._since_ns = now()

    def name(self, peer: Peer) -> str:
        """Of a process in no pod: its user. One that is gone again shares a name with all of those."""
        now_ns = self._now()
        if now_ns - self._since_ns >= KEEP_NS:
            self._seen.clear()
            self._since_ns = now_ns
        if peer.pid not in self._seen:
            self._seen[peer.pid] = self._look(peer)
        return self._seen[peer.pid]

    def _look(self, peer: Peer) -> str:
        try:
            text = (self._proc / str(peer.pid) / "cgroup").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return "gone"
        pods = cgroup.parse_all(text)
        return " ".join(f"{pod.pod_uid}/{pod.container_id}" for pod in pods) or f"user {peer.uid}"
