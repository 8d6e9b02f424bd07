"""The cluster-wide event log and job progress of one node: two threads beside the manager, and their status."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from emulator_runtime.domain.errors import EmuGpuError
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.ipc.poller import CallSoon
from emulator_runtime.retrying import Backoff, keep_running
from emulator_runtime.timing.host import monotonic_ns, wall_ns
from sharing_manager.persistence.event_log import EventLog
from sharing_manager.persistence.progress import ProgressStore
from sharing_manager.settings import Settings
from sharing_manager.store.client import client_of
from sharing_manager.store.lookups import RedisProgress
from sharing_manager.store.outbox import Outbox
from sharing_manager.store.progress_queries import RedisProgressQuery
from sharing_manager.store.redis_errors import MEMORY, StoreUnavailableError
from sharing_manager.store.redis_link import Link, RedisLink
from sharing_manager.store.shipper import BATCH_ROWS, Bounds, Counts, Shipper

_IDLE_S = 0.05
"""Maximum time between an event and its shipping if `notify` isn't called (host seconds)."""
_GATHER_S = 0.01
"""Events within this time are shipped together (host seconds), since each round trip delays the manager's thread."""
_END_S = 3.0


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """Status for metrics and readiness. Counts are since shipping began, except for `merged` (since the file was
    created)."""

    connected: bool = False
    problem: str = ""
    """Kind of the current problem ("away", "auth", "memory", ...); "" if there is none."""
    backlog_rows: int = 0
    backlog_bytes: int = 0
    oldest_age_s: float = 0.0
    shipped: int = 0
    connections: int = 0
    rewound: int = 0
    lost: int = 0
    merged: int = 0


class RedisStore:
    """See `connect`. `progress` is the ProgressStore for the manager's service."""

    def __init__(
        self,
        open_outbox: Callable[[], Outbox],
        link: Link,
        progress: RedisProgress,
        backoff: Backoff,
        bounds: Bounds,
        report: Callable[[str], None],
    ) -> None:
        self._open_outbox, self._link = open_outbox, link
        self._lookups = progress
        self._backoff, self._bounds, self._report = backoff, bounds, report
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._drain_until_ns = 0
        self._status = StoreStatus()
        self._reported = ""
        self._thread = threading.Thread(target=self._run, name="emugpu-shipper", daemon=True)

    @property
    def progress(self) -> ProgressStore:
        return self._lookups

    def start(self) -> None:
        """Begin to ship. Redis may be unavailable; this call doesn't wait for it."""
        self._thread.start()
        self._lookups.start()

    def notify(self) -> None:
        """An event was recorded: ship it now and not only after up to 50 ms. Cheap; may be called in any thread."""
        self._wake.set()

    def stop(self, drain_s: float = 1.0) -> None:
        """Ship the remaining events within `drain_s`, then end. May be called twice."""
        self._drain_until_ns = monotonic_ns() + round(drain_s * NS_PER_S)
        self._stopping.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(drain_s + _END_S)
        self._lookups.stop(_END_S)

    def status(self) -> StoreStatus:
        """The latest status; may be called in any thread."""
        return self._status

    # --- the shipping thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        keep_running("shipping events", self._ship, self._stopping, self._backoff, self._failed)
        self._link.close()

    def _ship(self) -> None:
        with contextlib.closing(self._open_outbox()) as outbox:
            self._serve(outbox)

    def _failed(self, error: Exception) -> None:
        """Report the error, once in a row. Nothing is shipped until the file has been opened again."""
        self._status = replace(self._status, connected=False, problem="failure")
        line = f"shipping failed unexpectedly ({error!r}); it is started again"
        if isinstance(error, EmuGpuError):
            line = f"{error}; no events are shipped until then"
        elif isinstance(error, sqlite3.Error):
            line = f"the event log can't be read for shipping ({error}); it is opened again"
        if line != self._reported:
            self._reported = line
            self._report(line)

    def _serve(self, outbox: Outbox) -> None:
        """Ship until `stop` is called; then ship the remaining events within the time that `stop` allows."""
        shipper = Shipper(
            outbox,
            self._link,
            self._bounds,
            self._report,
            now_ns=monotonic_ns,
            now_ms=lambda: wall_ns() // 1_000_000,
        )
        while not self._stopping.is_set():
            pause_s = self._attempt(shipper)
            shipper.make_room()
            self._publish(shipper, outbox.merged())
            self._reported = ""
            if shipper.connected:
                self._backoff.reset()
            self._pause(shipper, pause_s)
        while not shipper.problem and monotonic_ns() < self._drain_until_ns and self._attempt(shipper) == 0:
            pass
        self._publish(shipper, outbox.merged())

    def _attempt(self, shipper: Shipper) -> float:
        """Ship a batch. Returns the pause before the next one, 0 if there are more entries."""
        try:
            shipped = shipper.attempt()
        except StoreUnavailableError as error:
            shipper.failed(error)
            if error.kind == MEMORY:
                self._lookups.distrust()
            return self._backoff.next_s()
        return _IDLE_S if not shipped else 0 if shipped == BATCH_ROWS else _GATHER_S

    def _pause(self, shipper: Shipper, pause_s: float) -> None:
        """Wait. A notification ends an idle pause, but not the time for gathering events, nor a pause after a failure."""
        if pause_s == _IDLE_S and shipper.connected:
            if self._wake.wait(pause_s):
                self._stopping.wait(_GATHER_S)
            self._wake.clear()
        elif pause_s:
            self._stopping.wait(pause_s)

    def _publish(self, shipper: Shipper, merged: int) -> None:
        backlog, counts = shipper.backlog, replace(shipper.counts)
        age_ns = wall_ns() - backlog.oldest_wall_ns if backlog.oldest_wall_ns else 0
        self._status = _status(shipper, counts, merged, max(0.0, age_ns / NS_PER_S))


def _status(shipper: Shipper, counts: Counts, merged: int, oldest_age_s: float) -> StoreStatus:
    return StoreStatus(
        connected=shipper.connected,
        problem=shipper.problem,
        backlog_rows=shipper.backlog.rows,
        backlog_bytes=shipper.backlog.size_bytes,
        oldest_age_s=oldest_age_s,
        shipped=counts.shipped,
        connections=counts.connections,
        rewound=counts.rewound,
        lost=counts.lost,
        merged=merged,
    )


def connect(
    settings: Settings, event_log: EventLog, poller: CallSoon, *, report: Callable[[str], None] | None = None
) -> RedisStore:
    """Make the store of this node; it connects and starts later.

    `event_log` must have created its file (`settings.state_file`) already, because the outbox is that file. Raises
    InputError for an invalid URL, and ClusterError for a file that can't be used.
    """
    variable = Settings.variable("redis_url")
    link = RedisLink(settings.redis_url, variable, settings.node)
    query_client = client_of(settings.redis_url, variable)

    def open_outbox() -> Outbox:
        return Outbox(settings.state_file, settings.node, lambda: wall_ns() // 1_000_000)

    open_outbox().close()
    chance = Random(f"{settings.node}/redis")
    query = RedisProgressQuery(query_client, link.place, monotonic_ns)
    progress = RedisProgress(query, open_outbox, poller, Backoff(chance, longest_s=2.0), monotonic_ns)
    return RedisStore(
        open_outbox,
        link,
        progress,
        Backoff(chance),
        Bounds(settings.outbox_bytes, settings.stream_length),
        report or _to_stderr,
    )


def _to_stderr(line: str) -> None:
    print(f"sharing manager: {line}", file=sys.stderr, flush=True)
