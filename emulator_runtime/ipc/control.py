"""The job's end of a connection (to a local cluster or a manager) on which notifications may arrive between replies."""

from __future__ import annotations

import socket
from collections import deque

from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.ipc.channel import Channel, wait_readable
from emulator_runtime.ipc.fields import whole
from emulator_runtime.ipc.frames import Message

_RESIZE = "resize"


def resize_message(host: HostShare) -> Message:
    """The notification that the CPUs or memory of a running job change. It has no reply."""
    return {"op": _RESIZE, "cpu_milli": host.cpu_milli, "memory_bytes": host.memory_bytes}


class ControlChannel(Channel):
    """A channel that separates resize notifications from replies; `new_share` returns them."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._shares: deque[Message] = deque()

    def receive(self) -> Message:
        """The next message that isn't a resize notification. Raises like Channel.receive."""
        while (message := super().receive()).get("op") == _RESIZE:
            self._shares.append(message)
        return message

    def receive_order(self) -> Message:
        """The next order, for a process without a run. Earlier resize notifications are dropped: their run has ended."""
        message = self.receive()
        self._shares.clear()
        return message

    def new_share(self, *, least_cpu_milli: int = 1) -> HostShare | None:
        """The latest resize notification, or None. Doesn't wait. Raises ProtocolError if it is invalid."""
        while wait_readable([self], 0) and self._read():
            pass
        self._shares.extend(message for message in self._ready if message.get("op") == _RESIZE)
        self._ready = deque(message for message in self._ready if message.get("op") != _RESIZE)
        if not self._shares:
            return None
        last = self._shares[-1]
        self._shares.clear()
        return share_in(last, least_cpu_milli)


def share_in(message: Message, least_cpu_milli: int = 1) -> HostShare:
    """The share of the node in these fields. Raises ProtocolError if they are invalid."""
    return HostShare(whole(message, "cpu_milli", least=least_cpu_milli), whole(message, "memory_bytes", 0))
