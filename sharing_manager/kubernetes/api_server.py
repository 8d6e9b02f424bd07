"""A small HTTPS client for the Kubernetes API server, on the standard library: it needs only list, watch and create.

(The `kubernetes` package uses 45 to 74 MB of memory on every node.) Each request makes a new connection: requests are rare,
and no connection can go stale. The token is read for each request, because the kubelet rotates it.

Source: Kubernetes documentation, "Accessing the Kubernetes API from a Pod", "Kubernetes API Concepts" (lists, watches).
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from urllib.parse import urlencode

from emulator_runtime.domain.errors import ClusterError, InputError
from emulator_runtime.domain.units import MIB, to_ns
from emulator_runtime.retrying import Backoff
from emulator_runtime.timing.host import monotonic_ns

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MAX_BODY_BYTES = 64 * MIB
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0
"""Limits of the pauses between failed requests (host seconds)."""
_CHUNK_BYTES = 65536

_FIXES = {
    401: "is the service account's token mounted and accepted?",
    403: "give the node daemon's service account this permission (the chart's ClusterRole has it)",
    404: "is this the address of a Kubernetes API server?",
}


class ApiServerError(ClusterError):
    """The API server gave no usable answer. `status` is the HTTP status, 0 if there is none. A retry helps: a missing
    permission, for instance, may be granted later."""

    retry_helps = True

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Endpoint:
    """Address and credentials of the API server. With `context` None it is plain HTTP, for a proxy on this host."""

    host: str
    port: int
    token_file: Path | None = None
    context: Callable[[], ssl.SSLContext] | None = None

    @classmethod
    def in_cluster(cls, environ: Mapping[str, str], directory: Path = SERVICE_ACCOUNT_DIR) -> Endpoint:
        """The endpoint for a pod with a service account. Raises InputError outside of such a pod."""
        host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise InputError("KUBERNETES_SERVICE_HOST", "is not set: run in a pod, or set EMUGPU_MANAGER_KUBERNETES=0")
        if not port.isdecimal() or not 0 < int(port) < 65536:
            raise InputError("KUBERNETES_SERVICE_PORT", f"must be a port number, got {port!r}")
        ca_file = str(directory / "ca.crt")
        return cls(host, int(port), directory / "token", partial(ssl.create_default_context, cafile=ca_file))


@dataclass(frozen=True)
class Timeouts:
    """In host seconds. A watch without a line for `quiet_s` is closed; normally the server ends it earlier."""

    connect_s: float = 5.0
    answer_s: float = 5.0
    quiet_s: float = 150.0


class ApiServer:
    """A client of the API server for the border; thread-safe. All methods raise ApiServerError."""

    def __init__(self, endpoint: Endpoint, timeouts: Timeouts | None = None) -> None:
        self._endpoint = endpoint
        self._timeouts = timeouts or Timeouts()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._closed = False

    def get(self, path: str, query: Mapping[str, str], accept: str = "application/json") -> object:
        """The JSON document at `path`."""
        with self._exchange("GET", path, query, accept=accept) as response:
            return _document(self._body(response))

    def post(self, path: str, body: object) -> None:
        """Create an object, and ignore the body of the answer."""
        with self._exchange("POST", path, {}, json.dumps(body).encode()) as response:
            self._body(response)

    def watch(self, path: str, query: Mapping[str, str], accept: str = "application/json") -> Generator[object]:
        """One JSON document per change until the server ends the stream. The caller must close the generator."""
        with self._exchange("GET", path, query, accept=accept, quiet_s=self._timeouts.quiet_s) as response:
            while line := response.readline(MAX_BODY_BYTES):
                yield _document(line)

    def close(self) -> None:
        """Abort all requests in all threads; later requests fail at once."""
        with self._lock:
            self._closed = True
            for sock in self._sockets:
                with contextlib.suppress(OSError):
                    # not SSLSocket.shutdown, which would drop the TLS state while another thread reads
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)

    @contextlib.contextmanager
    def _exchange(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes | None = None,
        *,
        accept: str = "application/json",
        quiet_s: float | None = None,
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request. Other errors are translated into ApiServerError here, and only here."""
        try:
            with self._connection() as connection:
                target = f"{path}?{urlencode(query)}" if query else path
                connection.request(method, target, body, self._headers(accept))
                response = connection.getresponse()
                if response.status >= 300:
                    raise self._refusal(response, f"{method} {path}")
                if quiet_s is not None and connection.sock is not None:
                    connection.sock.settimeout(quiet_s)
                yield response
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            where = f"{self._endpoint.host}:{self._endpoint.port}"
            reason = str(error) or type(error).__name__
            raise ApiServerError(f"API server {where}: {method} {path}: no usable answer: {reason}") from error

    @contextlib.contextmanager
    def _connection(self) -> Iterator[http.client.HTTPConnection]:
        endpoint, connect_s = self._endpoint, self._timeouts.connect_s
        if endpoint.context is None:
            connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=connect_s)
        else:
            context = endpoint.context()
            connection = http.client.HTTPSConnection(endpoint.host, endpoint.port, timeout=connect_s, context=context)
        with contextlib.closing(connection):
            connection.connect()
            sock: socket.socket = connection.sock
            sock.settimeout(self._timeouts.answer_s)
            _keep_alive(sock)
            with self._lock:
                if self._closed:
                    raise OSError("closed")
                self._sockets.add(sock)
            try:
                yield connection
            finally:
                with self._lock:
                    self._sockets.discard(sock)

    def _headers(self, accept: str) -> dict[str, str]:
        headers = {"Accept": accept, "Content-Type": "application/json", "User-Agent": "emugpu-sharing-manager"}
        if self._endpoint.token_file is not None:
            headers["Authorization"] = f"Bearer {self._endpoint.token_file.read_text(encoding='ascii').strip()}"
        return headers

    def _body(self, response: http.client.HTTPResponse) -> bytes:
        """Read the whole body in bounded time and memory. A socket's time-out isn't enough, as it restarts with each
        byte."""
        body = bytearray()
        give_up_ns = monotonic_ns() + to_ns(self._timeouts.answer_s)
        while chunk := response.read1(_CHUNK_BYTES):
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise ValueError(f"more than {MAX_BODY_BYTES} bytes")
            if monotonic_ns() > give_up_ns:
                raise TimeoutError(f"not complete after {self._timeouts.answer_s:g} s")
        return bytes(body)

    def _refusal(self, response: http.client.HTTPResponse, what: str) -> ApiServerError:
        """The error for a refused request. A Status object has the reason in `message` (API concepts); other bodies,
        such as a proxy's page, aren't logged."""
        body = self._body(response)
        with contextlib.suppress(ValueError, RecursionError):
            match json.loads(body):
                case {"kind": "Status", "message": str(said)}:
                    what = f"{what}: {said}"
        fix = _FIXES.get(response.status)
        text = f"API server: {what}: {response.status} {response.reason}" + (f"; {fix}" if fix else "")
        return ApiServerError(text, response.status)


def request_backoff(name: str) -> Backoff:
    """The pauses between failed requests of one thread. `name`: of the node and the thread, so that nodes don't retry in step."""
    return Backoff(Random(name), first_s=FIRST_PAUSE_S, longest_s=LONGEST_PAUSE_S)


def _document(text: bytes) -> object:
    document: object = json.loads(text)
    return document


def _keep_alive(sock: socket.socket) -> None:
    """Make the kernel detect a dead peer within half a minute (tcp(7)); not every system has these options."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
