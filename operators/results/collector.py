"""Reads the nodes' event streams into the operator's results store: read, store, acknowledge, in this order.

A collector that is killed between any two of these steps is given the same events again, and the store takes each event once.
After a failure the next attempt begins with a new reader, so that events which were delivered but not stored come before newer
ones.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from emulator_runtime.domain.errors import ProtocolError
from emulator_runtime.domain.units import to_s
from emulator_runtime.retrying import Backoff, keep_running
from operators.results.events import JobEvent
from operators.results.metrics import CollectorMetrics
from operators.results.store import Batch, ResultStore
from sharing_manager.store.client import Client
from sharing_manager.store.entries import NODES, Entry, EntryId, stream_of
from sharing_manager.store.reader import Delivery, GroupReader
from sharing_manager.store.redis_errors import translated

GROUP = "emugpu-operator"
CONSUMER = "operator"
"""There is one consumer: the process that holds the operator's lease."""
BLOCK_MS = 1000
"""Maximum wait of a read for an event: shorter than the client's timeout, and as long as `stop` may take."""
_COUNT = 500
_ALIGN_NS = 30_000_000_000
"""Interval at which the group is aligned with the store: a process that has lost its lease may have read meanwhile."""
_LOST_S = 0.2
_START = EntryId(0, 0)
_PENDING_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks of the collector's thread.

    `on_stored` gets each batch with new events and must not raise. `may_read`: a process that has lost its lease must not take
    events away from its successor.
    """

    on_stored: Callable[[Batch], None] = lambda _: None
    may_read: Callable[[], bool] = lambda: True


class Collector:
    """Its thread runs from `start` to `stop` and calls `open_store`; `now_ns` is the wall clock."""

    def __init__(
        self,
        client: Client,
        place: str,
        open_store: Callable[[], ResultStore],
        metrics: CollectorMetrics,
        now_ns: Callable[[], int],
        *,
        hooks: Hooks | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self._client, self._place, self._open_store = client, place, open_store
        self._metrics, self._now_ns = metrics, now_ns
        self._hooks = hooks or Hooks()
        self._backoff = backoff or Backoff(Random("collector"))
        self._reader: GroupReader | None = None
        self._aligned_ns = 0
        self._store: ResultStore | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="emugpu-collector", daemon=True)
        self.problem = "no event stream was read yet"
        """Why events may be missing; empty if nothing is wrong."""
        self.away = False
        """Whether the last attempt failed, so that newer events of the nodes are unknown here."""

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Idempotent. Events that were read but not stored are delivered again after the next start."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def attempt(self, block_ms: int | None = BLOCK_MS) -> int:
        """Read, store and acknowledge one batch; returns the number of new events. Raises StoreUnavailableError, sqlite3.Error,
        ClusterError."""
        store, reader = self._opened()
        try:
            deliveries = reader.read(_COUNT, block_ms)
        except ProtocolError:
            deliveries = malformed(self._client, self._place, GROUP, CONSUMER)
            if not deliveries:
                raise
            self._reader = None  # the well-formed events of the same read are delivered again
        now_ns = self._now_ns()
        batch = batch_of(deliveries, now_ns)
        new = store.write(batch) if deliveries else 0
        reader.acknowledge(deliveries)
        self._note(batch, new, now_ns)
        return new

    def failed(self, error: Exception) -> None:
        """Note the error of an attempt; the next attempt begins with a new reader."""
        self._reader, self.away = None, True
        self._metrics.up.set(0)
        self._metrics.failures.labels(getattr(error, "code", type(error).__name__)).inc()
        if str(error) != self.problem:
            self.problem = str(error)
            print(f"collector: {error}; events wait there or on their nodes\n", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Must be called by the thread that made the attempts."""
        if self._store is not None:
            self._store.close()
            self._store = None

    # --- one attempt ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            keep_running("the collector", self._work, self._stopping, self._backoff, self.failed)
        finally:
            self.close()

    def _work(self) -> None:
        while not self._stopping.is_set():
            if self._hooks.may_read():
                self.attempt()
            else:
                self._stopping.wait(_LOST_S)
            self._backoff.reset()

    def _opened(self) -> tuple[ResultStore, GroupReader]:
        if self._store is None:
            self._store = self._open_store()
        now_ns = self._now_ns()
        if self._reader is None or not 0 <= now_ns - self._aligned_ns < _ALIGN_NS:
            self._aligned_ns = now_ns
            for line in align(self._client, self._place, GROUP, self._store.position):
                print(f"collector: {line}", file=sys.stderr, flush=True)
            self._reader = GroupReader(self._client, self._place, GROUP, CONSUMER)
        return self._store, self._reader

    def _note(self, batch: Batch, new: int, now_ns: int) -> None:
        self.problem, self.away = "", False
        self._metrics.up.set(1)
        self._metrics.events.inc(new)
        self._metrics.unread.inc(len(batch.unread))
        ages = [now_ns - event.wall_ns for event in batch.events if event.wall_ns]
        self._metrics.lag.set(to_s(max(0, *ages)) if ages else 0.0)
        if new:
            self._hooks.on_stored(batch)


def batch_of(deliveries: Iterable[Delivery], received_ns: int) -> Batch:
    """Deliveries as the store takes them."""
    given = list(deliveries)
    events = tuple(event for delivery in given if (event := _event_of(delivery, received_ns)) is not None)
    return Batch(events, tuple((d.stream, (d.id.epoch, d.id.sequence)) for d in given if d.entry is None))


def _event_of(delivery: Delivery, received_ns: int) -> JobEvent | None:
    entry = delivery.entry
    if entry is None:
        return None
    return JobEvent(
        stream=delivery.stream,
        epoch=delivery.id.epoch,
        sequence=delivery.id.sequence,
        node=entry.node,
        number=entry.sequence,
        at_ns=entry.at_ns,
        wall_ns=entry.wall_ns,
        kind=entry.kind,
        job_key=entry.job_key or entry.job_id,
        from_step=entry.from_step,
        steps_done=entry.steps_done,
        detail=entry.detail,
        namespace=entry.namespace,
        pod=entry.pod,
        absorbed=entry.absorbed,
        received_ns=received_ns,
    )


# --- the consumer group ---------------------------------------------------------------------------------------------------

# The store counts, not what Redis remembers: each may have lost its last seconds, or everything, without the other (a new volume
# for the store, a Redis that crashed). An event that is read twice does no harm and one that is never read is a gap, so the
# group goes back wherever it is ahead of the store.


def start_of(known: EntryId | None, given: EntryId, last: EntryId) -> EntryId | None:
    """The id after which the group must continue; None: its present position is right.

    `known`: the newest id of this stream in the store (None: it has none). `given`: the newest id that Redis has delivered to the
    group. `last`: the newest id of the stream, as far as Redis remembers.
    """
    if known is None or known > last:  # a stream that began again may have other events under lower ids
        return _START if given > _START else None
    return known if given > known else None


def align(client: Client, place: str, group: str, position: Callable[[str], tuple[int, int] | None]) -> list[str]:
    """Set the group back where needed; returns a sentence for each stream that was set back. Raises StoreUnavailableError."""
    messages = []
    with translated(place):
        for node in sorted(client.execute_command("SMEMBERS", NODES)):
            stream = stream_of(node)
            given = _given(client, stream, group)
            if given is None:
                continue
            known, last = position(stream), client.execute_command("XINFO STREAM", stream)["last-generated-id"]
            start = start_of(EntryId(*known) if known else None, given, EntryId.parse(last))
            if start is not None:
                client.execute_command("XGROUP SETID", stream, group, str(start))
                messages.append(f"{place}: {stream} is read again from {start} on; {given} was delivered last")
    return messages


def _given(client: Client, stream: str, group: str) -> EntryId | None:
    """The newest id that was delivered to the group; None if the stream or the group doesn't exist yet."""
    if not client.execute_command("EXISTS", stream):
        return None
    groups = {found["name"]: found["last-delivered-id"] for found in client.execute_command("XINFO GROUPS", stream)}
    return EntryId.parse(groups[group]) if group in groups else None


def malformed(client: Client, place: str, group: str, consumer: str) -> list[Delivery]:
    """Entries that were delivered to this consumer, haven't been acknowledged and are no events: somebody else wrote them.

    The reader fails at each of them again and again, so they must be counted and acknowledged. Raises StoreUnavailableError.
    """
    found = []
    with translated(place):
        for node in sorted(client.execute_command("SMEMBERS", NODES)):
            stream = stream_of(node)
            if _given(client, stream, group) is not None:
                found += _malformed_of(client, stream, group, consumer)
    return found


def _malformed_of(client: Client, stream: str, group: str, consumer: str) -> list[Delivery]:
    found: list[Delivery] = []
    start = str(_START)
    while True:
        reply = client.execute_command(
            *("XREADGROUP", "GROUP", group, consumer, "COUNT", _PENDING_AT_ONCE, "STREAMS", stream, start)
        )
        items = dict(reply or []).get(stream, [])
        if not items:
            return found
        start = items[-1][0]
        for entry_id, given in items:
            try:
                Entry.from_fields(f"{stream} {entry_id}", given or {"sequence": ""})
            except ProtocolError:
                found.append(Delivery(stream, EntryId.parse(entry_id), None))
