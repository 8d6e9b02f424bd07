"""Which container a peer of the socket is, without asking anybody: its cgroup says enough to tell it from the others.

A look costs 30 us, and who connects again and again would make it be looked again and again; so what was seen is kept for a
second. Names are for purses only: who may use a token is looked at anew (`check`), since a process id changes hands.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from emulator_runtime.domain.errors import ManagerUnavailableError, RefusedError
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.ipc.poller import Connection, Peer
from emulator_runtime.timing.host import monotonic_ns
from sharing_manager.kubernetes import cgroup
from sharing_manager.kubernetes.cgroup import PodCgroup

KEEP_NS = NS_PER_S
_GONE = "gone"


class PeerNames:
    """Names of peers, equal for the processes of one container. `by_user`: those of no pod are one peer for each user; else
    nothing is known of them, as where pods aren't identified and every process with a token is welcome."""

    def __init__(
        self, now: Callable[[], int] = monotonic_ns, proc: Path = Path("/proc"), *, by_user: bool = True
    ) -> None:
        self._now, self._proc, self._by_user = now, proc, by_user
        self._around = tuple(pod.pod_uid for pod in self._pods("self") or ())
        self._seen: dict[int, str] = {}
        self._since_ns = now()

    def name(self, peer: Peer) -> str:
        """Empty where it can't be told from others: the kernel shows no process id (no hostPID), or it is in no pod. One
        that is gone again shares a name with all of those."""
        if peer.pid <= 0:
            return ""
        now_ns = self._now()
        if now_ns - self._since_ns >= KEEP_NS:
            self._seen.clear()
            self._since_ns = now_ns
        if peer.pid not in self._seen:
            self._seen[peer.pid] = self._look(peer)
        return self._seen[peer.pid]

    def check(self, connection: Connection) -> None:
        """Raises unless the process that connected is still there, in the container that it was in then: a child may
        connect, end, and leave the connection to its parent and its process id to another pod. RefusedError where it has
        ended; ManagerUnavailableError where its name has changed, which a new connection gets right."""
        present = self._look(connection.peer)
        if present == _GONE or connection.connector_has_ended:
            raise RefusedError(
                f"process {connection.peer.pid}, which opened this connection, has ended; connect from the process that trains"
            )
        if present != connection.group:
            self._seen.pop(connection.peer.pid, None)
            raise ManagerUnavailableError(
                f"process {connection.peer.pid} is not in the container that opened this connection; connect anew"
            )

    def _look(self, peer: Peer) -> str:
        pods = self._pods(str(peer.pid))
        if pods is None:
            return _GONE
        pod = self._outermost(pods)
        if pod is None:
            return f"user {peer.uid}" if self._by_user else ""
        return f"{pod.pod_uid}/{pod.container_id}"

    def _outermost(self, pods: tuple[PodCgroup, ...]) -> PodCgroup | None:
        """The first pod below those that this manager runs in itself (a node that is a pod of another cluster): what is
        below a container's own cgroup, the container may have made."""
        for depth, pod in enumerate(pods):
            if depth >= len(self._around) or pod.pod_uid != self._around[depth]:
                return pod
        return pods[-1] if pods else None

    def _pods(self, process: str) -> tuple[PodCgroup, ...] | None:
        """The outermost first; None where there is no such process."""
        try:
            text = (self._proc / process / "cgroup").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        return cgroup.parse_all(text)
