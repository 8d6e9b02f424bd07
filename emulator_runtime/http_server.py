"""The HTTP server of all programs: /metrics, /healthz and /readyz.

A function that is passed in answers each request in a thread of its own, so this module knows neither metrics nor programs.
The program chooses who accepts connections: `start` does it in a thread; otherwise the program's own loop waits for `fileno`
and calls `answer`, so that probes fail if that loop hangs. Nothing wakes up without requests, and no host name is looked up
(which may take seconds without DNS).

Every pod may be able to connect, and a probe must still get its answer. Therefore one deadline covers the whole request, the
server closes connections of clients that take all places, and metrics are written at most once a second.
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
from typing import Any

MAX_REQUESTS = 16
"""Maximum number of clients that wait for an answer at the same time."""
MAX_THREADS = 2 * MAX_REQUESTS
"""Maximum number of threads. Threads of closed connections may take a moment to end; beyond this, clients are refused."""
MAX_HEAD_BYTES = 16 * 1024
"""Maximum size of a request."""
REQUEST_S = 5.0
"""Deadline for a whole request, from the connection to the last byte of the answer (host seconds)."""
METRICS_AGE_S = 1.0
"""Maximum age of /metrics; an older page is written again (host seconds)."""

ACCEPT_AGAIN_S = 0.1
"""Pause before the next attempt to accept a connection if no file descriptor is free (host seconds)."""
_NO_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""If accept(2) fails with these, the connection stays in the listener's queue, so the listener stays readable."""

TEXT = "text/plain; charset=utf-8"
METRICS = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of Prometheus' text format, which all Prometheus-compatible programs read."""

Reply = tuple[int, str, bytes]
"""Status, content type and body."""


@dataclass(frozen=True, slots=True)
class Request:
    """A GET request: its path, its query without the question mark, and its Authorization header (empty: none)."""

    path: str
    query: str = ""
    authorization: str = ""


OnRequest = Callable[[Request], Reply]
"""Answers a GET request; called in a thread of its own."""
Now = Callable[[], int]
"""The host's monotonic clock in nanoseconds."""
Check = Callable[[], str]
"""Returns the problem as text; empty if there is none."""

_log = logging.getLogger("emugpu.http")


def pages(metrics: Callable[[], Reply], healthy: Check, ready: Check, now_ns: Now) -> OnRequest:
    """The handler of the three pages. It calls `metrics` at most once a second and never twice at the same time."""
    checks = {"/healthz": healthy, "/readyz": ready}
    cached = _CachedReply(metrics, now_ns)

    def on_request(request: Request) -> Reply:
        if request.path == "/metrics":
            return cached.reply()
        if request.path in checks:
            problem = checks[request.path]()
            return 503 if problem else 200, TEXT, f"{problem or 'ok'}\n".encode()
        return 404, TEXT, b"there are /metrics, /healthz and /readyz\n"

    return on_request


class _CachedReply:
    """Caches a reply for METRICS_AGE_S. If several requests need a new one, one writes it and the others wait."""

    def __init__(self, write: Callable[[], Reply], now_ns: Now) -> None:
        self._write, self._now_ns = write, now_ns
        self._lock = threading.Lock()
        self._last: tuple[int, Reply] | None = None

    def reply(self) -> Reply:
        """The age counts from the end of `write`: requests that waited for a slow `write` use its result."""
        with self._lock:
            if self._last is None or self._now_ns() - self._last[0] >= METRICS_AGE_S * 1e9:
                reply = self._write()
                self._last = self._now_ns(), reply
            return self._last[1]


class HttpServer:
    """Listens from construction until `close`, on IPv4 and, if the host supports it, IPv6. Port 0 chooses a free port."""

    def __init__(self, port: int, on_request: OnRequest, now_ns: Now) -> None:
        """Raises OSError if the port can't be bound."""
        self._server = _Server(port, on_request, now_ns)
        self._serving: tuple[threading.Thread, socket.socket] | None = None

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return self._server.bound_port

    def fileno(self) -> int:
        """A file descriptor that is readable when a client wants to connect."""
        return self._server.fileno()

    def answer(self) -> None:
        """Accept one connection; returns at once, even if there is none. If no file descriptor is free, it returns after
        ACCEPT_AGAIN_S: the connection stays in the queue, and a loop that waits for `fileno` would spin."""
        self._server.handle_request()

    def start(self) -> None:
        """Answer requests in a thread until `close`."""
        wake, woken = socket.socketpair()
        selector = selectors.DefaultSelector()  # made here: in the thread, a lack of descriptors would go unnoticed
        thread = threading.Thread(target=self._serve, args=(woken, selector), name="http", daemon=True)
        thread.start()
        self._serving = thread, wake

    def close(self) -> None:
        """Stop. A second call has no effect. Running answers continue, but `close` doesn't wait for them."""
        if self._serving is not None:
            thread, wake = self._serving
            wake.close()
            self._server.closing.set()
            thread.join()
        self._server.server_close()

    def _serve(self, woken: socket.socket, selector: selectors.BaseSelector) -> None:
        """Replaces serve_forever, which wakes up twice a second to check for the shutdown."""
        with woken, selector:
            selector.register(self, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            while not any(key.fileobj is woken for key, _ in selector.select()):
                self.answer()


@dataclass(slots=True)
class _Client:
    host: str
    served: bool = False  # its request has been read and its answer is being computed


class _Room:
    """The clients that wait for an answer, oldest first."""

    def __init__(self) -> None:
        self._clients: dict[socket.socket, _Client] = {}
        self._lock = threading.Lock()

    def enter(self, connection: socket.socket, host: str) -> bool:
        """Add a client; closes another client's connection if all places are taken. Returns False if that is impossible."""
        with self._lock:
            if len(self._clients) >= MAX_REQUESTS and not self._make_room(host):
                return False
            self._clients[connection] = _Client(host)
            return True

    def leave(self, connection: socket.socket) -> None:
        """Remove a client before its socket is closed: `_make_room` must not shut down a reused descriptor number."""
        with self._lock:
            self._clients.pop(connection, None)

    @contextlib.contextmanager
    def served(self, connection: socket.socket) -> Iterator[None]:
        client = self._clients.get(connection) or _Client("")  # its connection was closed meanwhile: a dummy
        client.served = True
        try:
            yield
        finally:
            client.served = False

    def _make_room(self, newcomer: str) -> bool:
        """Close the oldest connection of the host that has most, so that a host with many affects itself and no probe.

        Clients without a request are closed before clients that are served, because the thread of a served client
        continues. Closing a served client in favour of a new one from the same host gains nothing.
        """
        sizes = Counter(client.host for client in self._clients.values())
        victim, client = max(self._clients.items(), key=lambda item: (sizes[item[1].host], not item[1].served))
        if client.served and client.host == newcomer:
            return False
        del self._clients[victim]
        with contextlib.suppress(OSError):  # the client has closed the connection itself
            victim.shutdown(socket.SHUT_RDWR)
        return True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    timeout = 0  # handle_request must not wait: it is called when a client wants to connect
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
        # HTTPServer.server_bind would look up the host name.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.bound_port = int(self.socket.getsockname()[1])

    def get_request(self) -> tuple[Any, Any]:
        """Raises OSError if no connection could be accepted. A lack of descriptors is logged at its begin and its end."""
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
        except BaseException:  # no thread was started, so none will release these
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
        """Ignores clients that disconnected during the answer; logs errors of this program."""
        if not isinstance(sys.exc_info()[1], OSError):
            _log.exception("the answer to an HTTP request failed")


class _Handler(BaseHTTPRequestHandler):
    """Parses the request and writes the answer in memory; only `setup` and `finish` use the socket and the deadline."""

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
            self.connection.settimeout(self._left_s())  # sendall applies it to the whole answer
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
        """No access log: probes come every few seconds."""

    def _head(self) -> bytes:
        """The request up to its empty line; empty if it ends early or is too long. Raises OSError after the deadline."""
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
