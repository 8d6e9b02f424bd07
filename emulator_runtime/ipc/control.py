"""A job process's end of a channel (to its cluster, to its node's manager) on which news come between the answers."""

from __future__ import annotations

import socket
from collections import deque

from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.ipc.channel import Channel, wait_readable
from emulator_runtime.ipc.fields import whole
from emulator_runtime.ipc.frames import Message

_RESIZE = "resize"


def resize_message(host: HostShare) -> Message:
    """What is sent to a running job whose share of the node changes. No answer is expected."""
    return {"op": _RESIZE, "cpu_milli": host.cpu_milli, "memory_bytes": host.memory_bytes}


class ControlChannel(Channel):
    """A channel whose requests and receives pass over new shares of the node; `new_share` has them."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._shares: deque[Message] = deque()

    def receive(self) -> Message:
        """The next message that isn't a new share. Raises as Channel.receive does."""
        while (message := super().receive()).get("op") == _RESIZE:
            self._shares.append(message)
        return message

    def receive_order(self) -> Message:
        """The next message, for a process that runs nothing: a share that came before it was for a run that has ended."""
        message = self.receive()
        self._shares.clear()
        return message

    def new_share(self, *, least_cpu_milli: int = 1) -> HostShare | None:
        """The last new share that has come, without waiting; None if there is none. Raises ProtocolError for a wrong one."""
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
    """The share that these fields are. Raises ProtocolError for what is none."""
    return HostShare(whole(message, "cpu_milli", least=least_cpu_milli), whole(message, "memory_bytes", 0))
