"""Reads the events of all nodes as one consumer group: each event once per group, in the order of its node.

What was given but not acknowledged is given again after a crash. Written for one active reader per group (an operator
with leader election, a test): what a former one left unacknowledged is taken over at the start. A Redis that crashes may
forget acknowledgements of its last seconds (`appendfsync everysec`); who can't bear to see an event twice keeps its id
together with what came of it: an id never changes, and never stands for another event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import redis

from sharing_manager.store.client import Client
from sharing_manager.store.entries import NODES, Entry, EntryId, stream_of
from sharing_manager.store.troubles import translated

_FIRST = EntryId(0, 0)


class Delivery(NamedTuple):
    """One event with its place; `entry` is None where it was deleted before it could be read."""

    stream: str
    id: EntryId
    entry: Entry | None


class GroupReader:
    """One consumer. Raises StoreAwayError where Redis can't be asked; the same call may be repeated then."""

    def __init__(self, client: Client, place: str, group: str, consumer: str) -> None:
        self._client, self._place, self._group, self._consumer = client, place, group, consumer
        self._given: dict[str, EntryId] = {}
        """The newest id given of each stream: after a fail-over Redis may offer again what it has forgotten."""
        self._left: dict[str, str] = {}
        """Streams of which this consumer still has unacknowledged events from before, and from which id on."""

    def read(self, count: int = 100, block_ms: int | None = None) -> list[Delivery]:
        """The next events of all nodes, at most `count` of each; waits for one up to `block_ms` (None: not at all)."""
        with translated(self._place):
            self._join_new_streams()
            for stream in list(self._left):
                found = self._again(stream, count)
                if found:
                    return found
            return self._fresh(count, block_ms)

    def acknowledge(self, deliveries: Iterable[Delivery]) -> None:
        """These need not be given again."""
        by_stream: dict[str, list[str]] = {}
        for delivery in deliveries:
            by_stream.setdefault(delivery.stream, []).append(str(delivery.id))
        with translated(self._place):
            for stream, ids in by_stream.items():
                self._client.execute_command("XACK", stream, self._group, *ids)

    # --- streams --------------------------------------------------------------------------------------------------------

    def _join_new_streams(self) -> None:
        names: Iterable[str] = self._client.execute_command("SMEMBERS", NODES)
        for stream in sorted(stream_of(name) for name in names):
            if stream not in self._given:
                self._join(stream)
                self._take_over(stream)
                self._given[stream], self._left[stream] = _FIRST, "0-0"

    def _join(self, stream: str) -> None:
        """Make the group; a new one begins with the oldest event."""
        try:
            self._client.execute_command("XGROUP CREATE", stream, self._group, "0", "MKSTREAM")
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    def _take_over(self, stream: str) -> None:
        """Whatever any consumer of this group was given and didn't acknowledge becomes ours."""
        start = "0-0"
        while True:
            reply = self._client.execute_command("XAUTOCLAIM", stream, self._group, self._consumer, 0, start)
            start = reply[0]
            if start == "0-0":
                return

    # --- events ---------------------------------------------------------------------------------------------------------

    def _again(self, stream: str, count: int) -> list[Delivery]:
        """The next events that this consumer was given before; none left: the stream goes on with new ones."""
        reply = self._ask(stream, self._left[stream], count)
        if not reply:
            del self._left[stream]
            return []
        self._left[stream] = reply[-1][0]
        found = [_delivery(stream, *item) for item in reply]
        self._given[stream] = max(self._given[stream], found[-1].id)
        return found

    def _ask(self, stream: str, start: str, count: int) -> list[tuple[str, Mapping[str, str] | None]]:
        reply = self._group_read(["COUNT", count], {stream: start})
        return reply.get(stream, [])

    def _fresh(self, count: int, block_ms: int | None) -> list[Delivery]:
        if not self._given:
            return []
        options: list[str | int] = ["COUNT", count]
        if block_ms is not None:
            options += ["BLOCK", max(1, block_ms)]
        while True:
            reply = self._group_read(options, dict.fromkeys(self._given, ">"))
            found = [_delivery(stream, *item) for stream, items in reply.items() for item in items]
            self.acknowledge(delivery for delivery in found if delivery.id <= self._given[delivery.stream])
            fresh = [delivery for delivery in found if delivery.id > self._given[delivery.stream]]
            for delivery in fresh:
                self._given[delivery.stream] = delivery.id
            if fresh or not found:
                return fresh

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
            for stream in starts:  # Redis has lost it with what it had not saved
                self._join(stream)
            return {}
        return dict(reply or [])


def _delivery(stream: str, entry_id: str, given: Mapping[str, str] | None) -> Delivery:
    entry = Entry.from_fields(f"{stream} {entry_id}", given) if given else None
    return Delivery(stream, EntryId.parse(entry_id), entry)
