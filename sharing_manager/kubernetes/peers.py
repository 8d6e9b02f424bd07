"""Names the container of a socket's peer from its cgroup alone, without a request to another program.

A look-up costs 30 us, which a peer could cause again and again by reconnecting, so results are kept for a second. The names
are for time budgets only. Whether a peer may use a token is checked afresh (`check`), because a pid can be reused.
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
    """Names of peers; the processes of one container have the same name. With `by_user`, the processes of one user
    outside of all pods count as one peer; otherwise they have no name (for a manager that doesn't identify pods and accepts
    any process with a token)."""

    def __init__(
        self, now: Callable[[], int] = monotonic_ns, proc: Path = Path("/proc"), *, by_user: bool = True
    ) -> None:
        self._now, self._proc, self._by_user = now, proc, by_user
        self._own_pods = tuple(pod.pod_uid for pod in self._pods("self") or ())
        self._names: dict[int, str] = {}
        self._since_ns = now()

    def name(self, peer: Peer) -> str:
        """The peer's name, "" if there is none: the kernel shows no pid (no hostPID), or it is in no pod (and not `by_user`). All
        processes that have ended share one name."""
        if peer.pid <= 0:
            return ""
        now_ns = self._now()
        if now_ns - self._since_ns >= KEEP_NS:
            self._names.clear()
            self._since_ns = now_ns
        if peer.pid not in self._names:
            self._names[peer.pid] = self._read_name(peer)
        return self._names[peer.pid]

    def check(self, connection: Connection) -> None:
        """Raises unless the process that connected still runs in the same container: a child may connect, end, leave the
        connection to its parent, and its pid may then be reused by another pod. Raises RefusedError if the process has
        ended, and ManagerUnavailableError if its name has changed; then a new connection helps."""
        current = self._read_name(connection.peer)
        if current == _GONE or connection.connector_has_ended:
            raise RefusedError(
                f"process {connection.peer.pid}, which opened this connection, has ended; connect from the training process"
            )
        if current != connection.group:
            self._names.pop(connection.peer.pid, None)
            raise ManagerUnavailableError(
                f"process {connection.peer.pid} is not in the container that opened this connection; connect again"
            )

    def _read_name(self, peer: Peer) -> str:
        pods = self._pods(str(peer.pid))
        if pods is None:
            return _GONE
        pod = self._outermost(pods)
        if pod is None:
            return f"user {peer.uid}" if self._by_user else ""
        return f"{pod.pod_uid}/{pod.container_id}"

    def _outermost(self, pods: tuple[PodCgroup, ...]) -> PodCgroup | None:
        """The first pod below the pods that contain this manager itself (on a node that is a pod of another cluster).
        Further pods on the path are ignored, since a container may create cgroups below its own."""
        for depth, pod in enumerate(pods):
            if depth >= len(self._own_pods) or pod.pod_uid != self._own_pods[depth]:
                return pod
        return pods[-1] if pods else None

    def _pods(self, process: str) -> tuple[PodCgroup, ...] | None:
        """The pods of a process, outermost first; None if there is no such process."""
        try:
            text = (self._proc / process / "cgroup").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        return cgroup.parse_all(text)
