"""What a cluster asks a program over HTTP: /metrics, /healthz and /readyz; one server for all programs that are asked.

Each request is answered in a thread of its own by a function that is passed in, so this knows neither metrics nor programs.
Who accepts is the program's choice: with `start` a thread does, else a loop of one's own waits for `fileno` and calls
`answer`, so that a loop that hangs looks dead. Nothing wakes up while nobody asks, clients that are silent or too many are
turned away, and no name is looked up (which may take seconds without DNS).
"""

from __future__ import annotations

import logging
import selectors
import socket
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAX_REQUESTS = 16
"""At the same time; more are turned away, so that nobody can make the process full of threads."""
SLOW_CLIENT_S = 5.0
"""How long a client may say or take nothing (host seconds)."""

TEXT = "text/plain; charset=utf-8"

Reply = tuple[int, str, bytes]
"""Status, content type and body."""
OnGet = Callable[[str, str], Reply]
"""Answers a GET of a path (without its query) for a client with this Accept header; called in a thread of its own."""
Check = Callable[[], str]
"""Answers what is wrong; empty where all is well."""

_log = logging.getLogger("emugpu.http")


def pages(metrics: Callable[[str], tuple[str, bytes]], healthy: Check, ready: Check) -> OnGet:
    """The three pages. `metrics` gives content type and body for an Accept header."""
    checks = {"/healthz": healthy, "/readyz": ready}

    def on_get(path: str, accept: str) -> Reply:
        if path == "/metrics":
            return 200, *metrics(accept)
        if path in checks:
            problem = checks[path]()
            return 503 if problem else 200, TEXT, f"{problem or 'ok'}\n".encode()
        return 404, TEXT, b"there are /metrics, /healthz and /readyz\n"

    return on_get


class HttpServer:
    """Listens from its making to `close`, on IPv4 and, where the host has it, IPv6. Port 0 takes a free one."""

    def __init__(self, port: int, on_get: OnGet) -> None:
        """Raises OSError where the port can't be had."""
        self._server = _Server(port, on_get)
        self._serving: tuple[threading.Thread, socket.socket] | None = None

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._server.bound_port

    def fileno(self) -> int:
        """Readable when somebody wants to connect."""
        return self._server.fileno()

    def answer(self) -> None:
        """Take one connection; returns at once, also where there is none after all."""
        self._server.handle_request()

    def start(self) -> None:
        """Answer from a thread until `close`."""
        wake, woken = socket.socketpair()
        thread = threading.Thread(target=self._serve, args=(woken,), name="http", daemon=True)
        thread.start()
        self._serving = thread, wake

    def close(self) -> None:
        """Twice is once. An answer under way goes on, but keeps nobody waiting."""
        if self._serving is not None:
            thread, wake = self._serving
            wake.close()
            thread.join()
        self._server.server_close()

    def _serve(self, woken: socket.socket) -> None:
        """Not serve_forever, which wakes up twice a second to see whether it should go on."""
        with woken, selectors.DefaultSelector() as selector:
            selector.register(self, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            while not any(key.fileobj is woken for key, _ in selector.select()):
                self.answer()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    timeout = 0  # of handle_request, which is called when somebody is there
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def __init__(self, port: int, on_get: OnGet) -> None:
        self.on_get = on_get
        self._room = threading.BoundedSemaphore(MAX_REQUESTS)
        super().__init__(("", port), _Handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # Not HTTPServer's, which looks up the host's name.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.bound_port = int(self.socket.getsockname()[1])

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread was started that could give the room back
            self._room.release()
            raise

    def process_request_thread(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, *_: object) -> None:
        """A client that went away in mid-answer is no news; a mistake of ours is."""
        if not isinstance(sys.exc_info()[1], OSError):
            _log.exception("the answer to an HTTP request failed")


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = SLOW_CLIENT_S
    server_version = "emugpu"
    sys_version = ""

    def do_GET(self) -> None:
        status, content_type, body = self.server.on_get(self.path.partition("?")[0], self.headers.get("Accept", ""))
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Probes come every few seconds."""
