"""What a cluster asks a node daemon over HTTP: /metrics, /healthz (does the event loop turn?), /readyz (has it devices?).

Answered in threads of their own, but with what the event loop says: a daemon whose loop hangs must not look alive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TypeVar

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest

from emulator_runtime.domain.errors import ClusterError, ManagerUnavailableError
from emulator_runtime.http_server import METRICS, TEXT, HttpServer, Now, Reply, pages
from emulator_runtime.ipc.poller import CallSoon
from emulator_runtime.timing.host import monotonic_ns
from sharing_manager.kubernetes.metrics import Figure, NodeCollector
from sharing_manager.telemetry import NodeTelemetry

ANSWER_S = 2.0
"""How long the event loop may take to answer (host seconds)."""

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
        """Raises ClusterError where the port is taken."""
        try:
            self._server = HttpServer(self._wanted_port, self.answer, self._now_ns)
        except OSError as error:
            fix = "set EMUGPU_MANAGER_METRICS_PORT to a free port, or to 0 for none"
            raise ClusterError(f"port {self._wanted_port}: can't listen there ({error.strerror}); {fix}") from error
        self._server.start()

    def stop(self) -> None:
        """Twice is once."""
        if self._server is not None:
            self._server.close()
            self._server = None

    @property
    def port(self) -> int:
        """The port it listens on: another than the wanted one where that was 0."""
        return self._server.port if self._server is not None else self._wanted_port

    def answer(self, path: str) -> Reply:
        """What `pages` answers, or that the event loop didn't."""
        return _unless_away(lambda: self._pages(path))

    def _metrics(self) -> Reply:
        """That the loop is away is an answer as well: who waits for it needn't ask the loop again."""
        return _unless_away(lambda: (200, METRICS, generate_latest(self._registry)))


def _unless_away(reply: Callable[[], Reply]) -> Reply:
    try:
        return reply()
    except ManagerUnavailableError as error:
        return 503, TEXT, f"{error}\n".encode()
