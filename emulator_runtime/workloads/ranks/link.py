"""A TCP connection between two ranks: sends and receives whole messages and detects that the other host has failed."""

from __future__ import annotations

import secrets
import socket
from collections import deque
from collections.abc import Callable

from emulator_runtime.domain.errors import ClusterError, ProtocolError
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.ipc.channel import wait_readable
from emulator_runtime.ipc.frames import Decoder, Message, encode
from emulator_runtime.timing.host import monotonic_ns

SLICE_S = 0.1
"""How long a wait may last before the caller's hook is called again (host seconds)."""
_CHUNK_BYTES = 65536
_SEND_TIMEOUT_S = 10.0
_KEEPALIVE = {"TCP_KEEPIDLE": 2, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 5_000}
"""tcp(7): the kernel probes after 2 s of silence and gives up after 5 s, which also detects a host without power."""


class RankLink:
    """The connection to a rank; `name`, such as "rank 2", is used in messages. `nonce`: what a proof here is for."""

    def __init__(self, sock: socket.socket, name: str) -> None:
        self.name = name
        self.nonce = secrets.token_hex(16)
        self._socket = sock
        self._decoder = Decoder()
        self._ready: deque[tuple[Message, int]] = deque()
        sock.settimeout(_SEND_TIMEOUT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE.items():
            if hasattr(socket, option):  # Linux has all of them, other systems only some
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        """Send a message. Raises ClusterError if the connection is broken."""
        try:
            self._socket.sendall(encode(message))
        except OSError as error:
            raise self._gone(error.strerror or str(error)) from error

    def poll(self) -> None:
        """Read what has arrived. Raises ClusterError if the peer has disconnected and no message is left."""
        if not wait_readable([self], 0):
            return
        try:
            data = self._socket.recv(_CHUNK_BYTES)
            arrived_ns = monotonic_ns()
            messages = self._decoder.feed(data)
        except OSError as error:
            raise self._gone(error.strerror or str(error)) from error
        except ProtocolError as error:
            raise ClusterError(f"{self.name} sent what is no message: {error}; do all pods run one version?") from error
        if not data and not self._ready:
            raise self._gone("it closed the connection")
        self._ready.extend((message, arrived_ns) for message in messages)

    def peek(self) -> Message | None:
        """The next message that has arrived; it stays in the queue."""
        return self._ready[0][0] if self._ready else None

    def take(self) -> tuple[Message, int] | None:
        """Remove and return the next message that has arrived, with its arrival time (host nanoseconds)."""
        return self._ready.popleft() if self._ready else None

    def receive(self, timeout_s: float, hook: Callable[[], None]) -> tuple[Message, int]:
        """The next message and its arrival time. `hook` is called before each slice of the wait and may raise.

        Raises ClusterError after `timeout_s` (host seconds) or if the peer has disconnected.
        """
        give_up_ns = monotonic_ns() + round(timeout_s * NS_PER_S)
        while (taken := self.take()) is None:
            hook()
            if monotonic_ns() > give_up_ns:
                raise ClusterError(f"{self.name} has not answered for {timeout_s:g} s; see its pod's log")
            wait_readable([self], SLICE_S)
            self.poll()
        return taken

    def close(self) -> None:
        self._socket.close()

    def _gone(self, cause: str) -> ClusterError:
        return ClusterError(f"{self.name} is gone ({cause}); see its pod's log, this rank ends with it")
