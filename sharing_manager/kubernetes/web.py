"""What a cluster asks a node daemon over HTTP: /metrics, /healthz (does the event loop turn?), /readyz (has it devices?).

Answered in threads of their own, but with what the event loop says: a daemon whose loop hangs must not look alive.
"""

from __future__ import annotations

import selectors
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder

from emulator_runtime.domain.errors import ClusterError, ManagerUnavailableError
from emulator_runtime.ipc.poller import CallSoon
from sharing_manager.kubernetes.metrics import Figure, NodeCollector
from sharing_manager.kubernetes.waiting import logger
from sharing_manager.telemetry import NodeTelemetry

ANSWER_S = 2.0
"""How long the event loop may take to answer (host seconds)."""
MAX_REQUESTS = 16
"""At the same time; more are turned away, so that nobody can make this process full of threads."""
_SLOW_CLIENT_S = 5.0
_TEXT = "text/plain; charset=utf-8"

T = TypeVar("T")


def ask(poller: CallSoon, question: Callable[[], T], timeout_s: float = ANSWER_S) -> T:
    """What `question` answers in the poller's thread. Raises what it raises; ManagerUnavailableError after `timeout_s`."""
    future: Future[T] = Future()

    def answer() -> None:
        try:
            future.set_result(question())
        except Exception as error:
            future.set_exception(error)

    poller.call_soon(answer)
    try:
        return future.result(timeout_s)
    except TimeoutError as error:
        raise ManagerUnavailableError(f"the manager's event loop has not answered for {timeout_s:g} s") from error


class Web:
    """Listens from `start` to `stop`. `telemetry`, `figures` and `ready` are called in the poller's thread.

    `ready` answers "" or what the daemon still waits for.
    """

    def __init__(
        self,
        port: int,
        poller: CallSoon,
        telemetry: Callable[[], NodeTelemetry],
        figures: Callable[[], Iterable[Figure]],
        ready: Callable[[], str],
    ) -> None:
        self._wanted_port = port
        self._poller, self._ready = poller, ready
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(
            NodeCollector(lambda: ask(poller, telemetry), lambda: ask(poller, lambda: [*figures()]))
        )
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._server: _Server | None = None

    def start(self) -> None:
        """Raises ClusterError where the port is taken."""
        try:
            self._server = _Server(self._wanted_port, self.answer)
        except OSError as error:
            fix = "set EMUGPU_MANAGER_METRICS_PORT to a free port, or to 0 for none"
            raise ClusterError(f"port {self._wanted_port}: can't listen there ({error.strerror}); {fix}") from error
        self._thread = threading.Thread(target=self._server.serve, name="web", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Twice is once."""
        if self._server is not None:
            self._server.end()
            self._thread.join()
            self._server = None

    @property
    def port(self) -> int:
        """The port it listens on: another than the wanted one where that was 0."""
        return self._server.port if self._server is not None else self._wanted_port

    def answer(self, path: str, accept: str) -> tuple[int, str, bytes]:
        """Status, content type and body for a GET of `path`."""
        try:
            if path == "/metrics":
                encode, content_type = choose_encoder(accept)
                return 200, content_type, encode(self._registry)
            if path == "/healthz":
                ask(self._poller, lambda: None)
                return 200, _TEXT, b"ok\n"
            if path == "/readyz":
                missing = ask(self._poller, self._ready)
                return (503 if missing else 200), _TEXT, f"{missing or 'ok'}\n".encode()
        except ManagerUnavailableError as error:
            return 503, _TEXT, f"{error}\n".encode()
        return 404, _TEXT, b"there are /metrics, /healthz and /readyz\n"


OnGet = Callable[[str, str], tuple[int, str, bytes]]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    timeout = 0  # of handle_request, which `serve` calls when somebody is there

    def __init__(self, port: int, on_get: OnGet) -> None:
        self.on_get = on_get
        self._room = threading.BoundedSemaphore(MAX_REQUESTS)
        self.address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
        super().__init__(("", port), _Handler)
        self._wake, self._woken = socket.socketpair()

    def serve(self) -> None:
        """Until `end`. Not serve_forever, which wakes up twice a second to see whether it should go on."""
        with self, self._woken, selectors.DefaultSelector() as selector:
            selector.register(self.socket, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while not any(key.fileobj is self._woken for key, _ in selector.select()):
                self.handle_request()

    def end(self) -> None:
        """`serve` closes the sockets and returns."""
        self._wake.close()

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # Not HTTPServer's: it looks up the host's name, which may take seconds without DNS.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.port = int(self.socket.getsockname()[1])

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

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
            logger.exception("the answer to an HTTP request failed")


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _SLOW_CLIENT_S
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
