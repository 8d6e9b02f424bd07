"""What a cluster asks a program over HTTP: /metrics, /healthz and /readyz; one server for all programs that are asked.

Each request is answered in a thread of its own by a function that is passed in, so this knows neither metrics nor programs.
Who accepts is the program's choice: with `start` a thread does, else a loop of one's own waits for `fileno` and calls
`answer`, so that a loop that hangs looks dead. Nothing wakes up while nobody asks, and no name is looked up (which may take
seconds without DNS).

Every pod may be able to connect, so a probe must get its answer whatever others do: a request has one deadline for all of
it, a full room hangs up on who fills it, and the metrics are written once a second, not once a request.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import selectors
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any, Self

MAX_REQUESTS = 16
"""So many clients may wait for an answer at the same time."""
MAX_THREADS = 2 * MAX_REQUESTS
"""Those of clients that were hung up on may take a moment to end; beyond this a client is turned away."""
MAX_HEAD_BYTES = 16 * 1024
"""As much may a request say."""
REQUEST_S = 5.0
"""How long a request may take in all, from the connection to the last byte of its answer (host seconds)."""
METRICS_AGE_S = 1.0
"""/metrics is written anew when it is older (host seconds)."""

ACCEPT_AGAIN_S = 0.1
"""Pause before the next attempt to accept a connection, while no file descriptor is free (host seconds)."""
_NO_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""accept(2) fails with these and leaves the connection in the listener's queue, so the listener stays readable."""

TEXT = "text/plain; charset=utf-8"
METRICS = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of Prometheus' text format, the one that everybody reads."""

Reply = tuple[int, str, bytes]
"""Status, content type and body."""


@dataclass(frozen=True, slots=True)
class Request:
    """A GET: its path, its query without the question mark, and its header Authorization (empty: none)."""

    path: str
    query: str = ""
    authorization: str = ""


OnRequest = Callable[[Request], Reply]
"""Answers a GET; called in a thread of its own."""
OnGet = Callable[[str], Reply]
"""Answers a GET of a path (without its query); called in a thread of its own."""
Now = Callable[[], int]
"""The host's monotonic clock in nanoseconds."""
Check = Callable[[], str]
"""Answers what is wrong; empty where all is well."""

_log = logging.getLogger("emugpu.http")


def pages(metrics: Callable[[], Reply], healthy: Check, ready: Check, now_ns: Now) -> OnGet:
    """The three pages. `metrics` is called at most once a second and never twice at the same time."""
    checks = {"/healthz": healthy, "/readyz": ready}
    kept = _Kept(metrics, now_ns)

    def on_get(path: str) -> Reply:
        if path == "/metrics":
            return kept.reply()
        if path in checks:
            problem = checks[path]()
            return 503 if problem else 200, TEXT, f"{problem or 'ok'}\n".encode()
        return 404, TEXT, b"there are /metrics, /healthz and /readyz\n"

    return on_get


class _Kept:
    """One answer for all who ask within METRICS_AGE_S of it: one writes it, the others wait for it."""

    def __init__(self, write: Callable[[], Reply], now_ns: Now) -> None:
        self._write, self._now_ns = write, now_ns
        self._lock = threading.Lock()
        self._last: tuple[int, Reply] | None = None

    def reply(self) -> Reply:
        """Its age counts from its end, so that those who waited for a slow one don't write it again, one after the other."""
        with self._lock:
            if self._last is None or self._now_ns() - self._last[0] >= METRICS_AGE_S * 1e9:
                reply = self._write()
                self._last = self._now_ns(), reply
            return self._last[1]


class HttpServer:
    """Listens from its making to `close`, on IPv4 and, where the host has it, IPv6. Port 0 takes a free one."""

    def __init__(self, port: int, on_get: OnGet, now_ns: Now) -> None:
        """Raises OSError where the port can't be had."""
        self._listen(port, lambda request: on_get(request.path), now_ns)

    @classmethod
    def of_requests(cls, port: int, on_request: OnRequest, now_ns: Now) -> Self:
        """A server whose answers depend on more than the path. Raises OSError where the port can't be had."""
        made = cls.__new__(cls)
        made._listen(port, on_request, now_ns)
        return made

    def _listen(self, port: int, on_request: OnRequest, now_ns: Now) -> None:
        self._server = _Server(port, on_request, now_ns)
        self._serving: tuple[threading.Thread, socket.socket] | None = None

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._server.bound_port

    def fileno(self) -> int:
        """Readable when somebody wants to connect."""
        return self._server.fileno()

    def answer(self) -> None:
        """Take one connection; returns at once, also where there is none after all. While no file descriptor is free, it
        returns after ACCEPT_AGAIN_S: the connection stays in the queue, and a loop that waits for `fileno` would spin."""
        self._server.handle_request()

    def start(self) -> None:
        """Answer from a thread until `close`."""
        wake, woken = socket.socketpair()
        selector = selectors.DefaultSelector()  # in the thread, a lack of descriptors would end it unseen
        thread = threading.Thread(target=self._serve, args=(woken, selector), name="http", daemon=True)
        thread.start()
        self._serving = thread, wake

    def close(self) -> None:
        """Twice is once. An answer under way goes on, but keeps nobody waiting."""
        if self._serving is not None:
            thread, wake = self._serving
            wake.close()
            self._server.closing.set()
            thread.join()
        self._server.server_close()

    def _serve(self, woken: socket.socket, selector: selectors.BaseSelector) -> None:
        """Not serve_forever, which wakes up twice a second to see whether it should go on."""
        with woken, selector:
            selector.register(self, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            while not any(key.fileobj is woken for key, _ in selector.select()):
                self.answer()


@dataclass(slots=True)
class _Client:
    host: str
    served: bool = False  # it has asked, and what we do for it is under way


class _Room:
    """The clients that wait for an answer, the oldest first."""

    def __init__(self) -> None:
        self._clients: dict[socket.socket, _Client] = {}
        self._lock = threading.Lock()

    def enter(self, connection: socket.socket, host: str) -> bool:
        """Whether there is room, if need be made by hanging up on another."""
        with self._lock:
            if len(self._clients) >= MAX_REQUESTS and not self._make_room(host):
                return False
            self._clients[connection] = _Client(host)
            return True

    def leave(self, connection: socket.socket) -> None:
        """Before it is closed: its number may be another connection's then, which `_make_room` must not hit."""
        with self._lock:
            self._clients.pop(connection, None)

    @contextlib.contextmanager
    def served(self, connection: socket.socket) -> Iterator[None]:
        client = self._clients.get(connection) or _Client("")  # of one that was hung up on nobody asks any more
        client.served = True
        try:
            yield
        finally:
            client.served = False

    def _make_room(self, newcomer: str) -> bool:
        """Hang up on the oldest of the host that has most connections, so that a flood drives out itself and no probe.

        One that hasn't asked goes before one that is served, whose thread would go on: for the same host that is no gain.
        """
        sizes = Counter(client.host for client in self._clients.values())
        victim, client = max(self._clients.items(), key=lambda item: (sizes[item[1].host], not item[1].served))
        if client.served and client.host == newcomer:
            return False
        del self._clients[victim]
        with contextlib.suppress(OSError):  # it has gone by itself
            victim.shutdown(socket.SHUT_RDWR)
        return True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    timeout = 0  # of handle_request, which is called when somebody is there
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def __init__(self, port: int, on_request: OnRequest, now_ns: Now) -> None:
        self.on_request, self.now_ns, self.room = on_request, now_ns, _Room()
        self.closing = threading.Event()
        self._places = threading.BoundedSemaphore(MAX_THREADS)
        self._accepts = True
        super().__init__(("", port), _Handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # Not HTTPServer's, which looks up the host's name.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.bound_port = int(self.socket.getsockname()[1])

    def get_request(self) -> tuple[Any, Any]:
        """Raises OSError where no connection could be accepted; a shortage of descriptors is logged once, until it is over."""
        try:
            accepted = super().get_request()
        except OSError as error:
            if error.errno in _NO_RESOURCES:
                if self._accepts:
                    fix = "clients wait until one is free; raise the limit of open files (ulimit -n) if this goes on"
                    _log.warning("port %d: can't accept a connection (%s); %s", self.bound_port, error.strerror, fix)
                self._accepts = False
                self.closing.wait(ACCEPT_AGAIN_S)
            raise
        if not self._accepts:
            _log.warning("port %d: accepts connections again", self.bound_port)
        self._accepts = True
        return accepted

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            if not self.room.enter(request, client_address[0]):
                raise ConnectionRefusedError("its host has enough answers under way")
            super().process_request(request, client_address)
        except BaseException:  # no thread was started that could give back what was taken
            self.room.leave(request)
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        try:
            super().finish_request(request, client_address)
        finally:
            self.room.leave(request)

    def handle_error(self, *_: object) -> None:
        """A client that went away in mid-answer is no news; a mistake of ours is."""
        if not isinstance(sys.exc_info()[1], OSError):
            _log.exception("the answer to an HTTP request failed")


class _Handler(BaseHTTPRequestHandler):
    """Parses and writes in memory; only `setup` and `finish` deal with the client, and with the deadline."""

    server: _Server
    connection: socket.socket
    server_version = "emugpu"
    sys_version = ""

    def setup(self) -> None:
        self.connection = self.request
        self._until_ns = self.server.now_ns() + round(REQUEST_S * 1e9)
        self.rfile = BytesIO(self._head())
        self.wfile = self._answer = BytesIO()

    def finish(self) -> None:
        answer = self._answer.getvalue()
        if answer:
            self.connection.settimeout(self._left_s())  # sendall's is for all of it
            self.connection.sendall(answer)

    def do_GET(self) -> None:
        with self.server.room.served(self.connection):
            path, _, query = self.path.partition("?")
            request = Request(path, query, self.headers.get("Authorization", ""))
            status, content_type, body = self.server.on_request(request)
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Probes come every few seconds."""

    def _head(self) -> bytes:
        """The request up to its empty line; nothing where it ends before or is too long. Raises OSError when time is up."""
        head = b""
        while len(head) < MAX_HEAD_BYTES:
            self.connection.settimeout(self._left_s())
            part = self.connection.recv(4096)
            if not part:
                return b""
            head += part
            if b"\r\n\r\n" in head or b"\n\n" in head:
                return head
        return b""

    def _left_s(self) -> float:
        left_ns = self._until_ns - self.server.now_ns()
        if left_ns <= 0:
            raise TimeoutError
        return left_ns / 1e9
