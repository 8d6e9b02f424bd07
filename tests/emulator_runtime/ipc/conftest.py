"""A scripted server, and a host whose time passes only by sleeping."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from emulator_runtime.domain.errors import ManagerUnavailableError
from emulator_runtime.ipc.channel import Channel
from emulator_runtime.ipc.frames import Message

Answer = Message | bytes | None


class ScriptedServer:
    """One scripted session per connection. Each message that comes is followed by the session's next answer: a message,
    raw bytes, or None for no answer. After its last answer a session closes the connection; further
    connections are not answered."""

    def __init__(self, path: Path, sessions: Sequence[Sequence[Answer]]) -> None:
        self.received: list[list[Message]] = []
        self._path, self._sessions = path, sessions
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(8)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        assert not self._thread.is_alive(), "the script expects messages that never came"
        self._listener.close()

    def _serve(self) -> None:
        for session in self._sessions:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self._one(Channel(peer), peer, session)
        self._listener.close()

    def _one(self, channel: Channel, peer: socket.socket, session: Sequence[Answer]) -> None:
        seen: list[Message] = []
        self.received.append(seen)
        with contextlib.closing(channel), contextlib.suppress(ManagerUnavailableError):
            for answer in session:
                seen.append(channel.receive())
                if isinstance(answer, bytes):
                    peer.sendall(answer)
                elif answer is not None:
                    channel.send(answer)


@pytest.fixture
def serve(tmp_path) -> Iterator[Callable[..., ScriptedServer]]:
    """`serve([answers of the 1st connection], [of the 2nd], ...)`; the socket is tmp_path / "sock"."""
    servers: list[ScriptedServer] = []

    def start(*sessions: Sequence[Answer]) -> ScriptedServer:
        servers.append(ScriptedServer(tmp_path / "sock", sessions))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


class SleepyHost:
    """Time passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.time_ns = 0
        self.sleeps: list[int] = []

    def now(self) -> int:
        return self.time_ns

    def sleep(self, duration_ns: int) -> None:
        self.sleeps.append(duration_ns)
        self.time_ns += duration_ns


@pytest.fixture
def host() -> SleepyHost:
    return SleepyHost()
