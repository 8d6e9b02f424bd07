"""One node's sharing manager as a child process: start it, send requests, receive its events, restart it when it dies."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from emulator_runtime.domain.errors import ClusterError, ManagerUnavailableError
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.ipc.channel import Channel
from emulator_runtime.ipc.frames import Message
from emulator_runtime.ipc.poller import Connection, Poller
from emulator_runtime.ipc.replies import raise_for
from emulator_runtime.ipc.warp import WAKE, counts_in
from emulator_runtime.node import host_resources
from emulator_runtime.node.inventory import mig_member
from emulator_runtime.timing.host import monotonic_ns, sleep_ns
from scheduler_sims.clusters.local.processes import Child, ForkServer
from scheduler_sims.clusters.local.time_keeper import TimeKeeper
from scheduler_sims.inputs.cluster_file import NodeSpec

MODULE = "sharing_manager.__main__"
START_S = 60.0
MAX_RESTARTS = 5
_ADMIN_TIMEOUT_S = 10.0
_TRY_AGAIN_NS = 5_000_000

OnEvent = Callable[[str, Message], None]


class ManagerProcess:
    """The manager of one node."""

    def __init__(
        self, server: ForkServer, node: NodeSpec, directory: Path, time: TimeKeeper, poller: Poller, on_event: OnEvent
    ) -> None:
        self.node = node.name
        self._server = server
        self._directory = directory
        self._poller = poller
        self._on_event = on_event
        self._participants = time.participants
        self.participant = f"manager\0{node.name}"  # no job has such a name
        self._last_sequence = 0
        self._admin: Channel | None = None
        self._events: Connection | None = None
        self._closing = False
        self.restarts = 0
        inventory = directory / "inventory.json"
        devices = [
            {"index": d.index, "gpu_type": d.gpu_type, "memory_bytes": d.memory_bytes, **mig_member(d)}
            for d in node.devices
        ]
        directory.mkdir(parents=True)
        inventory.write_text(json.dumps(devices), encoding="utf-8")
        self._environment = {
            "EMUGPU_MANAGER_NODE": node.name,
            "EMUGPU_MANAGER_INVENTORY": str(inventory),
            "EMUGPU_MANAGER_SOCKET_DIR": str(directory),
            "EMUGPU_MANAGER_STATE_DIR": str(directory / "state"),
            "EMUGPU_MANAGER_CLOCK": str(time.path),
            "EMUGPU_MANAGER_SHARING": node.sharing,
            "EMUGPU_MANAGER_RESOURCES": host_resources.to_json(node.resources) if node.resources else "",
        }
        self._child = self._spawn()

    @property
    def job_socket(self) -> Path:
        return self._directory / "manager.sock"

    @property
    def pid(self) -> int:
        return self._child.pid

    def connect(self) -> None:
        """Wait until the manager answers, then subscribe to its events. Raises ClusterError if it never answers."""
        if not self._connects():
            raise ClusterError(
                f"the sharing manager of node {self.node} did not start: {self._child.exit_description()}"
            )

    def _connects(self) -> bool:
        """Wait until the manager answers; False if it died before that. Raises ClusterError if it hangs."""
        give_up_ns = monotonic_ns() + round(START_S * NS_PER_S)
        while not self._try_connect():
            if not self._child.alive:
                return False
            if monotonic_ns() > give_up_ns:
                raise ClusterError(f"the sharing manager of node {self.node} did not start: it does not answer")
            sleep_ns(_TRY_AGAIN_NS)
        return True

    def _try_connect(self) -> bool:
        try:
            self._admin = Channel.connect(self._admin_socket, _ADMIN_TIMEOUT_S)
            self._events = self._poller.connect(self._admin_socket, self._on_message, self._on_close)
            self._events.send({"op": "subscribe", "after": self._last_sequence})
            handled = raise_for(self._admin.request({"op": "handled"}))["handled"]
        except ManagerUnavailableError:
            self._disconnect()
            return False
        self._participate(int(handled))
        return True

    def _participate(self, handled: int) -> None:
        """Time may pass only when the manager waits, too: it decides who is served next on shared devices."""
        self._participants.leave(self.participant)
        self._participants.register(self.participant, decides=True, handled=handled)

    def wake(self) -> None:
        """Its deadline has come, and all others wait."""
        if self._events is not None:
            self._events.send(WAKE)

    @property
    def _admin_socket(self) -> Path:
        return self._directory / "admin.sock"

    def request(self, message: Message) -> Message:
        """Send a request; if the manager has died, restart it and repeat the request (every request may come twice).

        Raises the manager's error, or ClusterError if it doesn't stay alive.
        """
        while self._admin is not None:
            self._participants.sends_to(self.participant)
            try:
                return raise_for(self._admin.request(message))
            except ManagerUnavailableError:
                self._recover()
        raise ClusterError(f"the sharing manager of node {self.node} is gone for good")

    def terminate(self) -> None:
        self._closing = True
        self._disconnect()
        self._child.terminate()

    def kill_after(self, timeout_s: float) -> None:
        self._child.kill_after(timeout_s)

    def _spawn(self) -> Child:
        log = self._directory / "stderr"
        return Child(self._server, MODULE, log, self._environment, fd_variable="EMUGPU_MANAGER_LIFELINE_FD")

    def _on_message(self, _: Connection, message: Message) -> None:
        match message:
            case {"event": _}:
                self._last_sequence = int(message["sequence"])
                self._on_event(self.node, message)
            case {"op": "wait", "deadline_ns": int(deadline_ns), "handled": int(handled), "frames": dict(frames)}:
                self._participants.waits(self.participant, deadline_ns, handled=handled, frames=counts_in(frames))

    def _on_close(self, connection: Connection) -> None:
        if not self._closing and connection is self._events:
            self._recover()

    def _recover(self) -> None:
        """After a lost connection: reconnect, or restart the manager with the same state, as a kubelet would."""
        self._disconnect()
        if self._try_connect():
            return  # the manager lives and had only closed the connection
        while True:
            how = self._child.exit_description()
            self._child.socket.close()
            self.restarts += 1
            if self.restarts > MAX_RESTARTS:
                raise ClusterError(
                    f"the sharing manager of node {self.node} died {self.restarts} times, the last time: {how}; "
                    "see what kills it (memory? disk space in /tmp?) and run again"
                )
            self._child = self._spawn()
            if self._connects():
                return

    def _disconnect(self) -> None:
        events, self._events = self._events, None
        if events is not None:
            events.close()
        if self._admin is not None:
            self._admin.close()
            self._admin = None
