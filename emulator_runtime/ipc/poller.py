"""An event loop for message connections that can tell whether any message is on its way.

Not asyncio: a warp clock may jump only if a poll without waiting finds nothing readable, which asyncio can't tell. Also,
importing asyncio takes longer than all other imports of the manager.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import selectors
import socket
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from emulator_runtime.domain.errors import ClusterError, EmuGpuError, ManagerUnavailableError, ProtocolError
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.ipc.frames import Decoder, Message, encode
from emulator_runtime.ipc.replies import error_reply
from emulator_runtime.timing.host import monotonic_ns

_CHUNK_BYTES = 65536
MAX_UNSENT_BYTES = 4 * 1024 * 1024
"""A peer with this many unread bytes of replies is disconnected, so that it can't use up the server's memory."""

MAX_WAITING_BYTES = 64 * 1024
"""Maximum number of bytes that a peer may send while its reply is being computed; with more it is disconnected."""
ACCEPT_AGAIN_S = 0.1
"""Pause of a listener that can neither accept nor refuse a connection because no descriptor is free (host seconds)."""
_FD_SETSIZE = 1024
TURN_MESSAGES = 16
"""Requests of one peer that are answered before other peers' requests: about a millisecond at 30 to 60 us each."""

OnMessage = Callable[["Connection", Message], None]
OnClose = Callable[["Connection"], None]
OnOpen = Callable[["Connection"], None]
Admit = Callable[["Peer", "Listener"], str]
"""Returns the group of a peer (`Connection.group`). An EmuGpuError refuses the peer, which gets it as a reply. It may call
`rest` of the listener."""
_Ready = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Peer:
    """The connecting process as the kernel saw it at connect (unix(7): SO_PEERCRED); pid 0: in a hidden PID namespace."""

    pid: int
    uid: int
    gid: int

    @classmethod
    def of(cls, sock: socket.socket) -> Peer:
        return cls(*_UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)))


_UCRED = struct.Struct("=iII")
_SO_PEERPIDFD = 77
"""Available since Linux 6.5; Python 3.11 has no name for it. Source: asm-generic/socket.h."""
_NO_PIDFD = frozenset({errno.ENOPROTOOPT, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
NOBODY = Peer(0, 0xFFFFFFFF, 0xFFFFFFFF)


class Connection:
    """The connection to one peer of a Poller; `send` never blocks.

    `serves`: the peer sends requests, and an error of `on_message` is sent as the reply; otherwise `poll` raises it.
    `group`: the group of the peer according to the listener's `admit`.
    """

    def __init__(
        self,
        poller: Poller,
        sock: socket.socket,
        on_message: OnMessage,
        on_close: OnClose,
        *,
        serves: bool = False,
        peer: Peer = NOBODY,
        group: str = "",
    ) -> None:
        sock.settimeout(0.0)
        self.peer = peer
        self.group = group
        self._poller = poller
        self._socket = sock
        self._on_message = on_message
        self._on_close = on_close
        self._serves = serves
        self._decoder = Decoder()
        self._unsent = bytearray()
        self._waits_for_turn = False
        self._paused = False
        self._held = False
        self._awaits_room = False
        self.open = True
        self.sent = self.received = 0
        """Number of messages; one that was read but not served yet doesn't count."""
        self._watch()

    def send(self, message: Message) -> None:
        """Queue a message; as much as possible is passed to the kernel at once."""
        if not self.open:
            return
        self._unsent += encode(message)
        self.sent += 1
        self._flush()

    def close(self) -> None:
        """Close the connection; `on_close` is called once."""
        if self.open:
            self.open = False
            self._poller.forget(self._socket)
            self._socket.close()
            self._on_close(self)

    def _flush(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
            del self._unsent[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        if len(self._unsent) > MAX_UNSENT_BYTES:
            self.close()
        elif self._awaits_room is not bool(self._unsent):
            self._watch()

    def _watch(self) -> None:
        """Register the socket for reading and writing as its state requires."""
        self._awaits_room = bool(self._unsent)
        readable, writable = None if self._held else self._readable, self._flush if self._unsent else None
        self._poller.watch(self._socket, readable, writable)

    @property
    def unsent_bytes(self) -> int:
        """Bytes of replies that the peer hasn't read."""
        return len(self._unsent)

    @property
    def peer_is_gone(self) -> bool:
        """Whether the peer has closed the connection, even if that hasn't been read yet."""
        if not self.open:
            return True
        look = select.poll()
        look.register(self._socket, 0)  # poll(2) always reports POLLHUP
        return any(events & (select.POLLHUP | select.POLLERR) for _, events in look.poll(0))

    @property
    def connector_has_ended(self) -> bool:
        """Whether the connecting process has ended. The connection may live on in its child or parent, and `peer.pid` may be
        reused then. False if the kernel can't tell (before Linux 6.5, or no descriptor is free)."""
        if not self.open:
            return True
        try:
            process = self._socket.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
        except OSError as error:
            return error.errno not in _NO_PIDFD
        try:
            look = select.poll()
            look.register(process, select.POLLIN)  # a pidfd is readable once its process has ended: pidfd_open(2)
            return bool(look.poll(0))
        finally:
            os.close(process)

    def prefer(self) -> None:
        """Give this connection priority over others that are ready at the same time."""
        self._poller.prefer(self._socket)

    def hold(self) -> None:
        """Stop reading and answering until `release`. The kernel buffers what the peer sends, then blocks the peer."""
        if self.open and not self._held:
            self._held = True
            self._watch()

    def release(self) -> None:
        """Continue, beginning with the messages that were read before `hold`."""
        if self.open and self._held:
            self._held = False
            self._watch()
            self._wait_for_turn()

    def pause(self) -> None:
        """Answer nothing until `resume`: the reply to a request comes later, and replies must keep their order."""
        self._paused = True

    def resume(self) -> None:
        """Continue with the messages that arrived meanwhile."""
        self._paused = False
        self._wait_for_turn()

    def refuse(self, error: EmuGpuError, about: object = None) -> None:
        """Reply with an error about a message with this op; also possible after `on_message` has returned."""
        self.send(error_reply(error, about))

    def _readable(self) -> None:
        if self._waits_for_turn or self._held:
            return  # messages that were read before come first; the kernel buffers the rest
        try:
            data = self._socket.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._decoder.add(data)
        if not self._paused:
            self._take_turn()
        elif self._decoder.pending_bytes > MAX_WAITING_BYTES:
            self.close()

    def _take_turn(self) -> None:
        """Answer the messages that were read, up to TURN_MESSAGES; then it is the turn of other peers."""
        self._waits_for_turn = False
        for _ in range(TURN_MESSAGES):
            if not self.open or self._paused or self._held:
                return
            try:
                message = self._decoder.next()
            except ProtocolError as error:
                if self._serves:
                    self.refuse(error)  # explain before closing; the rest of the stream can't be parsed
                self.close()
                return
            if message is None:
                return
            self._deliver(message)
        self._wait_for_turn()

    def _wait_for_turn(self) -> None:
        if self.open and not (self._paused or self._held or self._waits_for_turn):
            self._waits_for_turn = True
            self._poller.next_round(self._take_turn)

    def _deliver(self, message: Message) -> None:
        self.received += 1
        try:
            self._on_message(self, message)
        except EmuGpuError as error:
            if not self._serves:
                raise
            self.refuse(error, message.get("op"))


class Listener:
    """A socket that accepts connections. While it rests, new connections wait in the kernel's queue."""

    def __init__(self, poller: Poller, sock: socket.socket, path: Path, accept: Callable[[], None]) -> None:
        self._poller, self._socket, self._path, self._accept = poller, sock, path, accept
        self.wake()

    def rest(self) -> None:
        self._poller.unwatch(self._socket)

    def wake(self) -> None:
        if self._socket.fileno() >= 0:
            self._poller.watch(self._socket, self._accept)

    def close(self) -> None:
        self.rest()
        self._socket.close()
        self._path.unlink(missing_ok=True)


class CallSoon(Protocol):
    """The part of a Poller that other threads may use."""

    def call_soon(self, function: Callable[[], None], /) -> None:
        """Run `function` in the poller's thread. Thread-safe."""
        ...


class Poller:
    """Waits for sockets and calls their callbacks. If `poll(0)` returns 0, no message is on its way to this process."""

    def __init__(self) -> None:
        self._selector = selectors.EpollSelector()
        self._listeners: list[Listener] = []
        self._registered: dict[int, int] = {}
        self._preferred: set[int] = set()
        self._silent: set[socket.socket] = set()
        self._paused: dict[Listener, int] = {}
        """Listeners that lacked a descriptor for a connection, and the host time in ns at which each tries again."""
        self._next_round: list[Callable[[], None]] = []
        self._soon: deque[Callable[[], None]] = deque()  # append and popleft are thread-safe
        self._wake_up, self._woken = socket.socketpair()
        self._wake_up.settimeout(0.0)
        self._woken.settimeout(0.0)
        self.watch(self._woken, self._run_soon)
        self._spare = os.open(os.devnull, os.O_RDONLY)
        """A reserved descriptor: without one, a connection could be neither accepted nor refused."""

    def call_soon(self, function: Callable[[], None]) -> None:
        """Run `function` in the thread that calls `poll`. Thread-safe. After `close` it isn't run."""
        self._soon.append(function)
        with contextlib.suppress(OSError):  # a full socket wakes the poller anyway; a closed one has no poller
            self._wake_up.send(b"!")

    def _run_soon(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(_CHUNK_BYTES)
        for _ in range(len(self._soon)):  # functions added by these wait for the next round, so that sockets get a turn
            self._soon.popleft()()

    def next_round(self, function: Callable[[], None]) -> None:
        """Call `function` in the next `poll`, which then doesn't wait. Only from callbacks of this poller."""
        self._next_round.append(function)

    def listen(
        self,
        path: Path,
        on_message: OnMessage,
        on_close: OnClose,
        *,
        mode: int = 0o666,
        on_open: OnOpen | None = None,
        admit: Admit | None = None,
    ) -> Listener:
        """Accept connections on a Unix socket at `path`. Replaces a stale socket file, or an empty directory, which a
        container runtime creates for a missing mount source. `admit` decides about each peer before anything else.

        Raises ClusterError if the socket can't be created, for example for a path of more than 107 bytes (unix(7)).
        """
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _clear(path)
            sock.bind(str(path))
            path.chmod(mode)
            sock.listen(512)
        except OSError as error:
            sock.close()
            fix = "choose a short path in a directory that this process may write"
            raise ClusterError(f"{path}: can't listen there ({error.strerror or error}); {fix}") from error
        sock.settimeout(0.0)

        def accept() -> None:
            try:
                peer, _ = sock.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE) and not self._turn_away(sock):
                    self._pause(listener)
                return  # otherwise the peer has already disconnected
            credentials = Peer.of(peer)
            try:
                group = admit(credentials, listener) if admit is not None else ""
            except EmuGpuError as error:
                _say_and_close(peer, error)
                return
            connection = Connection(self, peer, on_message, on_close, serves=True, peer=credentials, group=group)
            if on_open is not None:
                on_open(connection)

        listener = Listener(self, sock, path, accept)
        self._listeners.append(listener)
        return listener

    def _turn_away(self, listener: socket.socket) -> bool:
        """No descriptor is free: accept with the reserved one and close, because the listener would stay readable and the
        poller would spin. False if another thread or process took the reserved descriptor first."""
        if self._spare >= 0:
            os.close(self._spare)
        accepted = False
        with contextlib.suppress(OSError):
            listener.accept()[0].close()
            accepted = True
        try:
            self._spare = os.open(os.devnull, os.O_RDONLY)
        except OSError:
            self._spare = -1
        return accepted

    def _pause(self, listener: Listener) -> None:
        listener.rest()
        self._paused[listener] = monotonic_ns() + round(ACCEPT_AGAIN_S * NS_PER_S)

    def _at_most_a_pause(self, timeout_s: float | None) -> float | None:
        """Wake the listeners whose pause is over. Returns `timeout_s`, or less if another pause ends earlier."""
        now_ns = monotonic_ns()
        for listener in [one for one, until_ns in self._paused.items() if now_ns >= until_ns]:
            del self._paused[listener]
            listener.wake()
        if not self._paused:
            return timeout_s
        pause_s = (min(self._paused.values()) - now_ns) / NS_PER_S
        return pause_s if timeout_s is None else min(timeout_s, pause_s)

    def connect(self, path: Path, on_message: OnMessage, on_close: OnClose) -> Connection:
        """A connection to the Unix socket at `path`. Raises ManagerUnavailableError if no process listens there."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(str(path))
        except OSError as error:
            sock.close()
            raise ManagerUnavailableError(f"nobody answers at {path}: {error.strerror or error}") from error
        return Connection(self, sock, on_message, on_close)

    def watch(self, sock: socket.socket, readable: _Ready | None, writable: _Ready | None = None) -> None:
        """Call `readable` when `sock` can be read (a listener: has a connection), `writable` when it can be written. With
        neither, the socket is only closed by `close`."""
        fd, has = sock.fileno(), self._registered.get(sock.fileno())
        events = (selectors.EVENT_READ if readable else 0) | (selectors.EVENT_WRITE if writable else 0)
        if not events:
            self.unwatch(sock)
            self._silent.add(sock)
            return
        self._silent.discard(sock)
        if has is None:
            self._selector.register(sock, events, (readable, writable))
        elif has != events:
            self._selector.modify(sock, events, (readable, writable))
        self._registered[fd] = events

    def prefer(self, sock: socket.socket) -> None:
        """Serve `sock` before other sockets that are ready at the same time, until it is closed."""
        self._preferred.add(sock.fileno())

    def unwatch(self, sock: socket.socket) -> None:
        """Stop the callbacks of `sock`."""
        if self._registered.pop(sock.fileno(), None) is not None:
            self._selector.unregister(sock)

    def forget(self, sock: socket.socket) -> None:
        """Remove `sock` before it is closed, because its descriptor number will be reused."""
        self._preferred.discard(sock.fileno())
        self._silent.discard(sock)
        self.unwatch(sock)

    def poll(self, timeout_s: float | None) -> int:
        """Wait up to `timeout_s` (None: no limit) and serve what is ready. Returns how many sockets were ready."""
        turns, self._next_round = self._next_round, []
        if self._paused:
            timeout_s = self._at_most_a_pause(timeout_s)
        ready = self._select(0 if turns else timeout_s)
        if self._preferred and len(ready) > 1:
            ready.sort(key=lambda entry: entry[0].fd not in self._preferred)
        for key, mask in ready:
            if self._registered.get(key.fd) is None:
                continue  # closed by an earlier callback of this round
            readable, writable = key.data
            if writable is not None and mask & selectors.EVENT_WRITE:
                writable()
            if readable is not None and mask & selectors.EVENT_READ and self._registered.get(key.fd) is not None:
                readable()
        for turn in turns:
            turn()
        return len(ready) + len(turns)

    def _select(self, timeout_s: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        """The selector waits whole milliseconds; select(2) on its descriptor (which is low: it was opened first) is precise."""
        if timeout_s and (descriptor := self._selector.fileno()) < _FD_SETSIZE:
            select.select([descriptor], [], [], timeout_s)
            timeout_s = 0
        return self._selector.select(timeout_s)

    def stop_listening(self) -> None:
        """Accept no new connections and remove the socket files."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        self._paused.clear()

    def close(self) -> None:
        """Stop listening and close every socket without calling `on_close`. A second call has no effect."""
        self.stop_listening()
        for sock in self._silent:
            sock.close()
        self._silent.clear()
        for key in list((self._selector.get_map() or {}).values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._registered.clear()
        self._next_round.clear()
        self._wake_up.close()
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
        self._selector.close()


def _say_and_close(sock: socket.socket, error: EmuGpuError) -> None:
    """Send the error, then close. The buffer of a new socket is empty, so the message fits; otherwise it is dropped."""
    with contextlib.suppress(OSError):
        sock.send(encode(error_reply(error)), socket.MSG_DONTWAIT)
    sock.close()


def _clear(path: Path) -> None:
    """Remove what is at `path`. Raises OSError for a directory that isn't empty."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
