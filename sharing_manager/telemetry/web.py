"""The HTTP endpoints of the node daemon: /metrics, /healthz (the event loop answers), /readyz (there is an inventory).

Requests are served in separate threads, but the event loop answers them, so that a daemon whose loop hangs isn't healthy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TypeVar

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest

from emulator_runtime.domain.errors import ClusterError, ManagerUnavailableError
from emulator_runtime.http_server import METRICS, TEXT, HttpServer, Now, Reply, Request, pages
from emulator_runtime.ipc.poller import CallSoon
from emulator_runtime.timing.host import monotonic_ns
from sharing_manager.telemetry.metrics import Figure, NodeCollector
from sharing_manager.telemetry.model import NodeTelemetry

ANSWER_S = 2.0
"""Maximum time for an answer of the event loop (host seconds)."""

T = TypeVar("T")


def ask(poller: CallSoon, question: Callable[[], T], timeout_s: float = ANSWER_S) -> T:
    """The result of `question`, called in the poller's thread. Raises what it raises; ManagerUnavailableError after
    `timeout_s`."""
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
    """Serves from `start` to `stop`. `telemetry`, `figures` and `ready` are called in the poller's thread.

    `ready` returns what the daemon still waits for, "" if nothing.
    """

    def __init__(
        self,
        port: int,
        poller: CallSoon,
        telemetry: Callable[[], NodeTelemetry],
        figures: Callable[[], Iterable[Figure]],
        ready: Callable[[], str],
        *,
        now_ns: Now = monotonic_ns,
    ) -> None:
        self._wanted_port, self._now_ns = port, now_ns
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(
            NodeCollector(lambda: ask(poller, telemetry), lambda: ask(poller, lambda: [*figures()]))
        )
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._pages = pages(self._metrics, lambda: ask(poller, lambda: ""), lambda: ask(poller, ready), now_ns)
        self._server: HttpServer | None = None

    def start(self) -> None:
        """Raises ClusterError if the port is taken."""
        try:
            self._server = HttpServer(self._wanted_port, self.answer, self._now_ns)
        except OSError as error:
            fix = "set EMUGPU_MANAGER_METRICS_PORT to a free port, or to 0 for none"
            raise ClusterError(f"port {self._wanted_port}: can't listen there ({error.strerror}); {fix}") from error
        self._server.start()

    def stop(self) -> None:
        """May be called twice."""
        if self._server is not None:
            self._server.close()
            self._server = None

    @property
    def port(self) -> int:
        """The port that it listens on. If port 0 was requested, the system has chosen one."""
        return self._server.port if self._server is not None else self._wanted_port

    def answer(self, request: Request) -> Reply:
        """The answer of `pages`, or status 503 if the event loop doesn't answer."""
        return _unless_away(lambda: self._pages(request))

    def _metrics(self) -> Reply:
        """The metrics, or status 503. That reply is shared with other waiting clients, which then don't ask the hanging
        loop again."""
        return _unless_away(lambda: (200, METRICS, generate_latest(self._registry)))


def _unless_away(reply: Callable[[], Reply]) -> Reply:
    try:
        return reply()
    except ManagerUnavailableError as error:
        return 503, TEXT, f"{error}\n".encode()
