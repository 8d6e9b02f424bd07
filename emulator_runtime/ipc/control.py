"""The job's end of a connection (to a local cluster or a manager) on which notifications may arrive between replies."""

from __future__ import annotations

import socket
from collections import deque

from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.ipc.channel import Channel
from emulator_runtime.ipc.fields import whole
from emulator_runtime.ipc.frames import Message

RESIZE, PIECE, STOP, MODE, LOST = "resize", "piece", "stop", "mode", "lost"
_NOTIFICATIONS = frozenset({RESIZE, PIECE, STOP, MODE, LOST})


def resize_message(host: HostShare) -> Message:
    """The notification that the CPUs or memory of a running job change. It has no reply."""
    return {"op": RESIZE, "cpu_milli": host.cpu_milli, "memory_bytes": host.memory_bytes}


class ControlChannel(Channel):
    """A channel that separates notifications from replies and orders; `notifications` returns them."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._notified: deque[Message] = deque()

    def receive(self) -> Message:
        """The next message that isn't a notification. Raises like Channel.receive."""
        while (message := super().receive()).get("op") in _NOTIFICATIONS:
            self._notified.append(message)
        return message

    def read_already(self) -> Message | None:
        while (message := super().read_already()) is not None and message.get("op") in _NOTIFICATIONS:
            self._notified.append(message)
        return message

    def receive_order(self) -> Message:
        """The next order, for a process without a run. Earlier notifications are dropped: their run has ended."""
        message = self.receive()
        self._notified.clear()
        return message

    def notifications(self, op: str = "") -> list[Message]:
        """The notifications (with `op`: those of one kind) that have arrived and were not returned before. Doesn't wait."""
        self.fill()
        if not (self._ready or self._notified):
            return []
        self._notified.extend(message for message in self._ready if message.get("op") in _NOTIFICATIONS)
        self._ready = deque(message for message in self._ready if message.get("op") not in _NOTIFICATIONS)
        taken = [message for message in self._notified if op in ("", message["op"])]
        self._notified = deque(message for message in self._notified if op not in ("", message["op"]))
        return taken

    def new_share(self, *, least_cpu_milli: int = 1) -> HostShare | None:
        """The latest resize notification, or None. Doesn't wait. Raises ProtocolError if it is invalid."""
        found = self.notifications(RESIZE)
        return share_in(found[-1], least_cpu_milli) if found else None


def share_in(message: Message, least_cpu_milli: int = 1) -> HostShare:
    """The share of the node in these fields. Raises ProtocolError if they are invalid."""
    return HostShare(whole(message, "cpu_milli", least=least_cpu_milli), whole(message, "memory_bytes", 0))
