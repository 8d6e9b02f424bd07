"""The life of one resource: serve, register, watch, clean up; all of it again after a restart of the kubelet.

The old server must be stopped before the new one registers: a kubelet that still has the old stream would close the new
connection together with it, and the resource would stay at 0 devices. The process itself never exits for this: a program that
restarts in order to register again ends in CrashLoopBackOff.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import grpc

from deviceplugin.allocator import Allocator
from deviceplugin.api import deviceplugin_pb2 as pb
from deviceplugin.api.deviceplugin_pb2_grpc import RegistrationStub, add_DevicePluginServicer_to_server
from deviceplugin.metrics import Metrics
from deviceplugin.offer_book import OfferBook
from deviceplugin.service import DevicePluginService, Stream, options
from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.domain.units import to_s
from emulator_runtime.retrying import growing_pause
from emulator_runtime.timing.host import monotonic_ns

API_VERSION = "v1beta1"
KUBELET_SOCKET = "kubelet.sock"
POLL_S = 0.5
"""How often the sockets are checked (host seconds); each check is one stat."""
REGISTER_TIMEOUT_S = 5.0
STREAM_TIMEOUT_S = 30.0
"""A kubelet opens its stream right after the registration. If it hasn't done so by then, the plugin registers again."""
SHORT_SESSION_S = 5.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 5.0
"""Limits of the pauses after failed or short-lived registrations (host seconds). A new kubelet.sock ends a pause."""
GRACE_S = 0.5
WORKERS = 8
"""Maximum number of concurrent calls. Each stream uses one for its whole life; threads are created when needed."""

_LONGEST_NAME = 50  # a socket's path has at most 107 bytes (unix(7)), of which the kubelet's directory needs 32
_log = logging.getLogger("deviceplugin")

FileIdentity = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class SessionState:
    """The observable state of a session. Files: None if they don't exist."""

    kubelet: FileIdentity | None
    socket: FileIdentity | None
    stream: Stream
    age_s: float


def reason_to_register(start: SessionState, now: SessionState) -> str | None:
    """The reason to register again, or None. A missing kubelet.sock is no reason: while its stream is open, the kubelet runs."""
    if now.stream is Stream.ENDED:
        return "the kubelet has closed its stream"
    if now.kubelet is not None and now.kubelet != start.kubelet:
        return "there is a new kubelet"
    if now.socket is None or now.socket != start.socket:
        return "the plugin's socket was removed"
    if now.stream is Stream.NONE and now.age_s > STREAM_TIMEOUT_S:
        return "the kubelet hasn't opened its stream"
    return None


def socket_name(resource: str) -> str:
    """The file name of a resource's socket: unique for each resource and short enough for a socket's path."""
    name = resource.replace("/", "_", 1)  # unique: a name has no underscore before the slash
    name = re.sub(r"[^A-Za-z0-9._-]", "-", name)
    if len(name) > _LONGEST_NAME:
        name = f"{name[: _LONGEST_NAME - 9]}-{hashlib.sha256(resource.encode()).hexdigest()[:8]}"
    return f"emugpu-{name}.sock"


def file_identity(path: Path) -> FileIdentity | None:
    """Distinguishes a file from its replacement at the same path; the inode number alone may be reused at once."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


class ResourcePlugin(threading.Thread):
    """Serves one resource, from `start` to `stop`, in a thread of its own."""

    def __init__(self, offers: OfferBook, allocator: Allocator, metrics: Metrics, kubelet_dir: Path) -> None:
        self.resource = offers.offer.name
        super().__init__(name=self.resource)
        self._offers = offers
        self._allocator = allocator
        self._metrics = metrics
        self._kubelet = kubelet_dir / KUBELET_SOCKET
        self._socket = kubelet_dir / socket_name(self.resource)
        self._wakeup = threading.Event()
        self._stopping = False
        self._registering: grpc.Future[pb.Empty] | None = None
        self._last_line = ""
        self.registered = False

    def run(self) -> None:
        """Run one session after the other until `stop`."""
        failures = 0
        while not self._stopping:
            kubelet, start_ns = file_identity(self._kubelet), monotonic_ns()
            try:
                self._run_once(kubelet)
            except ClusterError as error:
                self._log_once(f"{error}; waiting")
            except OSError as error:  # cleaning up may fail, for example if the directory has become read-only
                self._log_once(f"{error.filename or self._socket}: {error.strerror or error}; trying again")
            short = to_s(monotonic_ns() - start_ns) < SHORT_SESSION_S
            failures = failures + 1 if short else 0
            if failures:
                self._pause(growing_pause(failures, FIRST_PAUSE_S, LONGEST_PAUSE_S), kubelet)

    def stop(self) -> None:
        """Let the thread end; it interrupts every wait. `join` then takes at most GRACE_S."""
        self._stopping = True
        self._wakeup.set()
        if (call := self._registering) is not None:
            call.cancel()

    def _run_once(self, kubelet: FileIdentity | None) -> None:
        """One session. Raises ClusterError if the kubelet can't be reached or refuses the registration."""
        if kubelet is None:
            raise ClusterError(f"{self._kubelet}: the kubelet has no socket there")
        service = DevicePluginService(self._offers, self._allocator, self._metrics, self._wakeup.set)
        server = self._serve(service)
        try:
            self._register()
            self._watch(service, kubelet)
        finally:
            self._clean_up(service, server)

    def _serve(self, service: DevicePluginService) -> grpc.Server:
        server = grpc.server(ThreadPoolExecutor(WORKERS, thread_name_prefix=self.resource))
        add_DevicePluginServicer_to_server(service, server)
        try:
            self._socket.unlink(missing_ok=True)  # left by a process that was killed
            server.add_insecure_port(f"unix:{self._socket}")
        except (OSError, RuntimeError) as error:
            raise ClusterError(f"{self._socket}: can't be served: {error}") from error
        server.start()
        return server

    def _register(self) -> None:
        request = pb.RegisterRequest(
            version=API_VERSION, endpoint=self._socket.name, resource_name=self.resource, options=options()
        )
        try:
            with grpc.insecure_channel(f"unix:{self._kubelet}") as channel:
                self._registering = RegistrationStub(channel).Register.future(request, timeout=REGISTER_TIMEOUT_S)
                if self._stopping:
                    self._registering.cancel()
                self._registering.result()
        except grpc.FutureCancelledError as error:
            raise ClusterError(f"{self._kubelet}: stopped while registering") from error
        except grpc.RpcError as error:
            self._metrics.error("register")
            code, details = error.code().name.lower(), error.details()
            raise ClusterError(f"{self._kubelet}: can't register {self.resource}: {details} ({code})") from error
        finally:
            self._registering = None
        self._metrics.registered(self.resource)
        self._log_once("registered")
        self.registered = True

    def _watch(self, service: DevicePluginService, kubelet: FileIdentity) -> None:
        """Return when the resource must be registered again, or at `stop`."""
        start_ns = monotonic_ns()
        start = SessionState(kubelet, file_identity(self._socket), service.stream, 0.0)
        while not self._stopping:
            age_s = to_s(monotonic_ns() - start_ns)
            now = SessionState(file_identity(self._kubelet), file_identity(self._socket), service.stream, age_s)
            if (reason := reason_to_register(start, now)) is not None:
                self._log_once(f"{reason}; registering again")
                return
            self._wait(POLL_S)

    def _clean_up(self, service: DevicePluginService, server: grpc.Server) -> None:
        self.registered = False
        service.stop()
        server.stop(GRACE_S).wait()
        self._socket.unlink(missing_ok=True)

    def _pause(self, duration_s: float, kubelet: FileIdentity | None) -> None:
        """Wait, but end the wait if a new kubelet starts, to register with it at once."""
        start_ns = monotonic_ns()
        while not self._stopping and to_s(monotonic_ns() - start_ns) < duration_s:
            now = file_identity(self._kubelet)
            if now is not None and now != kubelet:
                return
            self._wait(POLL_S)

    def _wait(self, duration_s: float) -> None:
        self._wakeup.wait(duration_s)
        self._wakeup.clear()

    def _log_once(self, text: str) -> None:
        """Log `text` unless it equals the previous line, so that waiting for a kubelet is logged only once."""
        if text != self._last_line:
            self._last_line = text
            _log.info("%s: %s", self.resource, text)
