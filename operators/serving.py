"""/metrics, /healthz and /readyz of a program of this package, in a thread of its own: a probe must not wait for the work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from emulator_runtime.domain.errors import ClusterError

Check = Callable[[], str]
"""Answers what is wrong; empty where all is well."""


class StatusServer:
    """Serves from `start` until `stop`. Port 0 takes a free one."""

    def __init__(self, port: int, registry: CollectorRegistry, *, healthy: Check, ready: Check) -> None:
        checks = {"/healthz": healthy, "/readyz": ready}

        class Handler(BaseHTTPRequestHandler):
            timeout = 10

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path == "/metrics":
                    self._answer(200, CONTENT_TYPE_LATEST, generate_latest(registry))
                elif path in checks:
                    problem = checks[path]()
                    self._answer(503 if problem else 200, "text/plain; charset=utf-8", f"{problem or 'ok'}\n".encode())
                else:
                    self._answer(404, "text/plain; charset=utf-8", b"there are /metrics, /healthz and /readyz\n")

            def log_message(self, format: str, *args: object) -> None:
                pass

            def _answer(self, status: int, content_type: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        try:
            self._server = ThreadingHTTPServer(("", port), Handler)
        except OSError as error:
            raise ClusterError(
                f"port {port} for metrics can't be opened: {error.strerror}; choose another one"
            ) from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="status", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
