"""A blocking connection that sends and receives whole messages."""

from __future__ import annotations

import os
import select
import socket
import struct
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, Self

from emulator_runtime.domain.errors import ManagerUnavailableError
from emulator_runtime.ipc.frames import Decoder, Message, encode

_CHUNK_BYTES = 65536


class Channel:
    """Messages over a stream socket. A closed or broken connection raises ManagerUnavailableError."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._decoder = Decoder()
        self._ready: deque[Message] = deque()
        self.sent = self.received = 0
        """Number of messages."""
        self.ended = False
        """Whether `fill` has found the end of the stream, or this side has closed it."""

    @classmethod
    def connect(cls, path: Path, timeout_s: float | None = None) -> Self:
        """A connection to the Unix socket at `path`. Raises ManagerUnavailableError if no process listens there.

        If many processes connect at once, it waits in the kernel's queue. A non-blocking socket would get an error and
        have to try again, and clients that try more often would be served first.
        """
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if timeout_s is not None:
                whole_s = int(timeout_s)
                limit = struct.pack("@ll", whole_s, max(1, round((timeout_s - whole_s) * 1_000_000)))
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            sock.connect(str(path))
            sock.settimeout(timeout_s)
        except OSError as error:
            sock.close()
            raise ManagerUnavailableError(f"nobody answers at {path}: {error.strerror or error}") from error
        return cls(sock)

    def fileno(self) -> int:
        return self._socket.fileno()

    def wait_up_to(self, timeout_s: float) -> None:
        """Wait so long for an answer from now on, instead of as long as `connect` said."""
        self._socket.settimeout(timeout_s)

    def send(self, *messages: Message) -> None:
        """Send messages in one write, so that the peer wakes up once."""
        try:
            self._socket.sendall(b"".join(map(encode, messages)))
            self.sent += len(messages)
        except OSError as error:
            raise ManagerUnavailableError(f"the connection broke while sending: {error.strerror or error}") from error

    def receive(self) -> Message:
        """The next message. Raises ManagerUnavailableError at the end of the stream or after the timeout."""
        while not self._ready:
            if not self._read():
                raise ManagerUnavailableError("the other side closed the connection")
        return self._ready.popleft()

    def _read(self) -> bool:
        """Read the available bytes; False at the end of the stream."""
        try:
            return self._take(self._socket.recv(_CHUNK_BYTES))
        except OSError as error:
            raise ManagerUnavailableError(f"the connection broke: {error.strerror or error}") from error

    def _take(self, data: bytes) -> bool:
        messages = self._decoder.feed(data)
        self.received += len(messages)
        self._ready.extend(messages)
        return bool(data)

    def arrived(self) -> Message | None:
        """The next message that has arrived, if there is one. Raises ManagerUnavailableError at the end of the stream."""
        self.fill()
        message = self.read_already()
        if message is None and self.ended:
            raise ManagerUnavailableError("the other side closed the connection")
        return message

    def fill(self) -> None:
        """Read what has arrived, without waiting; `ended` says whether nothing comes any more."""
        while not self.ended:
            try:
                self.ended = not self._take(self._read_now())
            except BlockingIOError:
                return
            except OSError:
                self.ended = True

    def _read_now(self) -> bytes:
        """What has arrived. Raises BlockingIOError if that is nothing."""
        if self._socket.gettimeout() is None:
            return self._socket.recv(_CHUNK_BYTES, socket.MSG_DONTWAIT)
        # With a timeout, Python's recv waits, although the descriptor itself doesn't block.
        return os.read(self._socket.fileno(), _CHUNK_BYTES)

    def read_already(self) -> Message | None:
        """The next message of those that have been read."""
        return self._ready.popleft() if self._ready else None

    def request(self, message: Message) -> Message:
        """Send a message and wait for the reply. If the peer has closed the connection, its last message says why."""
        try:
            self.send(message)
        except ManagerUnavailableError as error:
            if not isinstance(error.__cause__, BrokenPipeError):
                raise
            try:
                return self.receive()
            except ManagerUnavailableError:
                raise error from error.__cause__
        return self.receive()

    def close(self) -> None:
        self.ended = True
        self._socket.close()


class HasDescriptor(Protocol):
    """A socket, or an object that has one."""

    def fileno(self) -> int: ...


def wait_readable(sources: Iterable[HasDescriptor], timeout_s: float) -> bool:
    """Whether one of the sources becomes readable within `timeout_s` host seconds. Uses poll(2), because select(2) fails
    for descriptors above 1023, which a process with many connections has."""
    poller = select.poll()
    for source in sources:
        poller.register(source.fileno(), select.POLLIN)
    return bool(poller.poll(timeout_s * 1000))
