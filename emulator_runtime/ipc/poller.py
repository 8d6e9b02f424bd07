"""An event loop for message connections, small enough to ask it whether anything is in flight.

Not asyncio: a warp clock may jump only when a poll without waiting finds nothing readable, which asyncio does not
tell, and a manager's start counts (asyncio costs more than the rest of its imports).
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
"""A peer that doesn't read its answers is dropped at this backlog, so that it can't use up the server's memory."""

MAX_WAITING_BYTES = 64 * 1024
"""What a peer may send on while its answer is being looked up; who sends more is hung up on."""
ACCEPT_AGAIN_S = 0.1
"""Pause of a listener that could neither accept a connection nor turn it away, for want of a descriptor (host seconds)."""
TURN_MESSAGES = 16
"""How many requests of one peer are answered before the others have their turn: at 30 to 60 us each, about a millisecond."""

OnMessage = Callable[["Connection", Message], None]
OnClose = Callable[["Connection"], None]
OnOpen = Callable[["Connection"], None]
Admit = Callable[["Peer", "Listener"], str]
"""What to call a peer (`Connection.group`). An error of the tree turns it away and is what it hears; the listener may rest."""
_Ready = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Peer:
    """Who connected, as the kernel saw it at that moment (unix(7): SO_PEERCRED); pid 0: in a PID namespace we can't see."""

    pid: int
    uid: int
    gid: int

    @classmethod
    def of(cls, sock: socket.socket) -> Peer:
        return cls(*_UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)))


_UCRED = struct.Struct("=iII")
_SO_PEERPIDFD = 77
"""Since Linux 6.5; Python 3.11 has no name for it. Source: asm-generic/socket.h."""
_NO_PIDFD = frozenset({errno.ENOPROTOOPT, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
NOBODY = Peer(0, 0xFFFFFFFF, 0xFFFFFFFF)


class Connection:
    """One peer of a Poller; `send` never blocks.

    `serves`: the peer asks and we answer, so what its requests raise is the answer. Else errors are ours and leave `poll`.
    `group`: what the listener's `admit` calls the peer.
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
        self.open = True
        self._watch()

    def send(self, message: Message) -> None:
        """Queue a message; what fits is handed to the kernel at once."""
        if not self.open:
            return
        self._unsent += encode(message)
        self._flush()

    def close(self) -> None:
        """End the connection; `on_close` is called once."""
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
        else:
            self._watch()

    def _watch(self) -> None:
        """Have the poller call for what can be done with the socket now."""
        readable, writable = None if self._held else self._readable, self._flush if self._unsent else None
        self._poller.watch(self._socket, readable, writable)

    @property
    def unsent_bytes(self) -> int:
        """Of answers that the peer doesn't take."""
        return len(self._unsent)

    @property
    def peer_is_gone(self) -> bool:
        """Whether the other side is closed, also where that hasn't been read yet."""
        if not self.open:
            return True
        look = select.poll()
        look.register(self._socket, 0)  # a hang-up is always told
        return any(events & (select.POLLHUP | select.POLLERR) for _, events in look.poll(0))

    @property
    def connector_has_ended(self) -> bool:
        """Whether the process that connected is no more; `peer.pid` may be another's then, though the connection lives on in
        a child or parent of it. False where the kernel can't tell (before Linux 6.5, or no descriptor is left)."""
        if not self.open:
            return True
        try:
            process = self._socket.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
        except OSError as error:
            return error.errno not in _NO_PIDFD
        try:
            look = select.poll()
            look.register(process, select.POLLIN)  # readable at its end: pidfd_open(2)
            return bool(look.poll(0))
        finally:
            os.close(process)

    def prefer(self) -> None:
        """From now on answer it before the others that are ready at the same time."""
        self._poller.prefer(self._socket)

    def hold(self) -> None:
        """Read and answer nothing until `release`; what the peer sends meanwhile stays in the kernel, which makes it wait."""
        if self.open and not self._held:
            self._held = True
            self._watch()

    def release(self) -> None:
        """Go on: first with what has been read before."""
        if self.open and self._held:
            self._held = False
            self._watch()
            self._wait_for_turn()

    def pause(self) -> None:
        """Answer nothing more until `resume`: the reply to a request comes later, and replies keep their order."""
        self._paused = True

    def resume(self) -> None:
        """Go on with what has come meanwhile."""
        self._paused = False
        self._wait_for_turn()

    def refuse(self, error: EmuGpuError) -> None:
        """Answer a request with an error, also after its callback has returned."""
        self.send(error_reply(error))

    def _readable(self) -> None:
        if self._waits_for_turn or self._held:
            return  # what was read before comes first; the kernel keeps the rest, and the peer waits
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
        """Answer what has been read, but not more than the others can wait for."""
        self._waits_for_turn = False
        for _ in range(TURN_MESSAGES):
            if not self.open or self._paused or self._held:
                return
            try:
                message = self._decoder.next()
            except ProtocolError as error:
                if self._serves:
                    self.refuse(error)  # one clear line, then the stream can't be trusted any more
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
        try:
            self._on_message(self, message)
        except EmuGpuError as error:
            if not self._serves:
                raise
            self.refuse(error)


class Listener:
    """A socket that takes connections, which can rest for a while: those who come then wait in its queue."""

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
        """Run `function` in the poller's thread; safe in any thread."""
        ...


class Poller:
    """Waits on sockets and calls back. `poll(0)` that answers 0 means: nothing is in flight towards this process."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._listeners: list[Listener] = []
        self._registered: dict[int, int] = {}
        self._preferred: set[int] = set()
        self._silent: set[socket.socket] = set()
        self._paused: dict[Listener, int] = {}
        """Listeners without a descriptor for a connection, and the host time in ns at which each tries again."""
        self._next_round: list[Callable[[], None]] = []
        self._soon: deque[Callable[[], None]] = deque()  # its ends are thread-safe
        self._wake_up, self._woken = socket.socketpair()
        self._wake_up.settimeout(0.0)
        self._woken.settimeout(0.0)
        self.watch(self._woken, self._run_soon)
        self._spare = os.open(os.devnull, os.O_RDONLY)
        """A descriptor to give up for a moment: without one, a connection could neither be accepted nor turned away."""

    def call_soon(self, function: Callable[[], None]) -> None:
        """Have `poll` call it in its own thread; from any thread, at any time. After `close` nobody calls it."""
        self._soon.append(function)
        with contextlib.suppress(OSError):  # full: it wakes up anyway; closed: there is nobody to wake
            self._wake_up.send(b"!")

    def _run_soon(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(_CHUNK_BYTES)
        for _ in range(len(self._soon)):  # what these add is for the next round, or sockets would wait
            self._soon.popleft()()

    def next_round(self, function: Callable[[], None]) -> None:
        """Call it in the next `poll`, which won't wait then. Only from callbacks of this poller."""
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
        """Accept connections on a Unix socket at `path`; a stale socket file is replaced, and a directory, which a
        container runtime makes of a mount's missing source. `admit` sees who comes before anything is done for it.

        Raises ClusterError where no socket can be made there, e.g. for a path of more than 107 bytes (unix(7)).
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
                return  # or the peer is gone again; the listener stays
            who = Peer.of(peer)
            try:
                group = admit(who, listener) if admit is not None else ""
            except EmuGpuError as error:
                _say_and_close(peer, error)
                return
            connection = Connection(self, peer, on_message, on_close, serves=True, peer=who, group=group)
            if on_open is not None:
                on_open(connection)

        listener = Listener(self, sock, path, accept)
        self._listeners.append(listener)
        return listener

    def _turn_away(self, listener: socket.socket) -> bool:
        """Out of descriptors: accept and close, or the listener would stay readable and the poller spin. False where
        another thread or process was faster to take the descriptor that was given up for it."""
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
        """Wake the listeners whose pause is over; the answer is `timeout_s`, or less where another pause ends before."""
        now_ns = monotonic_ns()
        for listener in [one for one, until_ns in self._paused.items() if now_ns >= until_ns]:
            del self._paused[listener]
            listener.wake()
        if not self._paused:
            return timeout_s
        pause_s = (min(self._paused.values()) - now_ns) / NS_PER_S
        return pause_s if timeout_s is None else min(timeout_s, pause_s)

    def connect(self, path: Path, on_message: OnMessage, on_close: OnClose) -> Connection:
        """A connection to the Unix socket at `path`. Raises ManagerUnavailableError when nobody listens there."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(str(path))
        except OSError as error:
            sock.close()
            raise ManagerUnavailableError(f"nobody answers at {path}: {error.strerror or error}") from error
        return Connection(self, sock, on_message, on_close)

    def watch(self, sock: socket.socket, readable: _Ready | None, writable: _Ready | None = None) -> None:
        """Call `readable` whenever `sock` can be read (a listener: accepted), `writable` when it takes bytes. With neither
        it is only closed with the others."""
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
        """Of the sockets that are ready at once, this comes before others, as long as it is open."""
        self._preferred.add(sock.fileno())

    def unwatch(self, sock: socket.socket) -> None:
        """Call nothing for it any more."""
        if self._registered.pop(sock.fileno(), None) is not None:
            self._selector.unregister(sock)

    def forget(self, sock: socket.socket) -> None:
        """Before it is closed: its number will be another's."""
        self._preferred.discard(sock.fileno())
        self._silent.discard(sock)
        self.unwatch(sock)

    def poll(self, timeout_s: float | None) -> int:
        """Wait up to `timeout_s` (None: for ever), serve what is ready, answer how many sockets that were."""
        turns, self._next_round = self._next_round, []
        if self._paused:
            timeout_s = self._at_most_a_pause(timeout_s)
        ready = self._selector.select(0 if turns else timeout_s)
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

    def stop_listening(self) -> None:
        """Take no new connections; socket files are removed."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        self._paused.clear()

    def close(self) -> None:
        """Stop listening and close every socket that is watched, without calling back. Closing twice is closing once."""
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
    """Tell why before hanging up: a buffer that nobody has written to takes it, and if not, then not."""
    with contextlib.suppress(OSError):
        sock.send(encode(error_reply(error)), socket.MSG_DONTWAIT)
    sock.close()


def _clear(path: Path) -> None:
    """Make room for a socket. Raises OSError for a directory with something in it: that is somebody's."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
