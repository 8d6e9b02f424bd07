"""Reads the events of all nodes as one consumer group: each event once per group, in the order of its node.

Events that were delivered but not acknowledged are delivered again after a crash. There should be one active reader per
group (an operator with leader election, a test); at its start it takes over the unacknowledged events of its predecessor. A
Redis that crashes may forget the acknowledgements of its last seconds (`appendfsync everysec`), so events may be delivered
twice. A reader that must not process an event twice stores the event's id with its result: an id never changes, and is
never used for another event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import redis

from sharing_manager.store.client import Client
from sharing_manager.store.entries import NODES, Entry, EntryId, stream_of
from sharing_manager.store.redis_errors import translated

_FIRST = EntryId(0, 0)


class Delivery(NamedTuple):
    """One event with its stream and id. `entry` is None if it was deleted before it could be read."""

    stream: str
    id: EntryId
    entry: Entry | None


class GroupReader:
    """One consumer. Raises StoreUnavailableError if Redis is unavailable; then the same call may be repeated."""

    def __init__(self, client: Client, place: str, group: str, consumer: str) -> None:
        self._client, self._place, self._group, self._consumer = client, place, group, consumer
        self._delivered: dict[str, EntryId] = {}
        """The newest id delivered from each stream. After a fail-over Redis may deliver older ones again."""
        self._unacknowledged: dict[str, str] = {}
        """Streams with unacknowledged events of an earlier run, and the id after which to continue with them."""

    def read(self, count: int = 100, block_ms: int | None = None) -> list[Delivery]:
        """The next events of all nodes, at most `count` per stream. Waits for one for up to `block_ms` (None: doesn't
        wait)."""
        with translated(self._place):
            self._join_new_streams()
            for stream in list(self._unacknowledged):
                deliveries = self._redelivered(stream, count)
                if deliveries:
                    return deliveries
            return self._new(count, block_ms)

    def acknowledge(self, deliveries: Iterable[Delivery]) -> None:
        """Mark these as processed, so that they aren't delivered again."""
        by_stream: dict[str, list[str]] = {}
        for delivery in deliveries:
            by_stream.setdefault(delivery.stream, []).append(str(delivery.id))
        with translated(self._place):
            for stream, ids in by_stream.items():
                self._client.execute_command("XACK", stream, self._group, *ids)

    # --- streams ----------------------------------------------------------------------------------------------------

    def _join_new_streams(self) -> None:
        names: Iterable[str] = self._client.execute_command("SMEMBERS", NODES)
        for stream in sorted(stream_of(name) for name in names):
            if stream not in self._delivered:
                self._join(stream)
                self._take_over(stream)
                self._delivered[stream], self._unacknowledged[stream] = _FIRST, "0-0"

    def _join(self, stream: str) -> None:
        """Create the group; a new one begins with the oldest event."""
        try:
            self._client.execute_command("XGROUP CREATE", stream, self._group, "0", "MKSTREAM")
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    def _take_over(self, stream: str) -> None:
        """Claim the unacknowledged events of all consumers of this group."""
        start = "0-0"
        while True:
            reply = self._client.execute_command("XAUTOCLAIM", stream, self._group, self._consumer, 0, start)
            start = reply[0]
            if start == "0-0":
                return

    # --- events -----------------------------------------------------------------------------------------------------

    def _redelivered(self, stream: str, count: int) -> list[Delivery]:
        """The next events that were delivered before. When there are none, the stream continues with new ones."""
        reply = self._read_stream(stream, self._unacknowledged[stream], count)
        if not reply:
            del self._unacknowledged[stream]
            return []
        self._unacknowledged[stream] = reply[-1][0]
        deliveries = [_delivery(stream, *item) for item in reply]
        self._delivered[stream] = max(self._delivered[stream], deliveries[-1].id)
        return deliveries

    def _read_stream(self, stream: str, start: str, count: int) -> list[tuple[str, Mapping[str, str] | None]]:
        reply = self._group_read(["COUNT", count], {stream: start})
        return reply.get(stream, [])

    def _new(self, count: int, block_ms: int | None) -> list[Delivery]:
        if not self._delivered:
            return []
        options: list[str | int] = ["COUNT", count]
        if block_ms is not None:
            options += ["BLOCK", max(1, block_ms)]
        while True:
            reply = self._group_read(options, dict.fromkeys(self._delivered, ">"))
            deliveries = [_delivery(stream, *item) for stream, items in reply.items() for item in items]
            self.acknowledge(delivery for delivery in deliveries if delivery.id <= self._delivered[delivery.stream])
            new = [delivery for delivery in deliveries if delivery.id > self._delivered[delivery.stream]]
            for delivery in new:
                self._delivered[delivery.stream] = delivery.id
            if new or not deliveries:
                return new

    def _group_read(self, options: list[str | int], starts: dict[str, str]) -> dict[str, list[Any]]:
        arguments: list[str | int] = [
            "XREADGROUP",
            "GROUP",
            self._group,
            self._consumer,
            *options,
            "STREAMS",
            *starts,
            *starts.values(),
        ]
        try:
            reply = self._client.execute_command(*arguments)
        except redis.ResponseError as error:
            if "NOGROUP" not in str(error):
                raise
            for stream in starts:  # Redis has lost the group together with other unsaved data
                self._join(stream)
            return {}
        return dict(reply or [])


def _delivery(stream: str, entry_id: str, given: Mapping[str, str] | None) -> Delivery:
    entry = Entry.from_fields(f"{stream} {entry_id}", given) if given else None
    return Delivery(stream, EntryId.parse(entry_id), entry)
