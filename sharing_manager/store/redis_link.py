"""The stream of one node in Redis: the commands that ship events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import redis

from sharing_manager.store.client import client_of, place_of
from sharing_manager.store.entries import NODES, PROGRESS, SEEN, Entry, EntryId, furthest, stream_of
from sharing_manager.store.redis_errors import StoreUnavailableError, translated
from sharing_manager.store.trimming import Trimmed, make_room

_MAX_SEQUENCE = 2**64 - 1
_MOST_AT_ONCE = 1000


class Link(Protocol):
    """What shipping needs of Redis. Each call may raise StoreUnavailableError, `append` also StreamMovedError."""

    place: str

    def open(self) -> list[str]: ...
    def last_id(self) -> EntryId | None: ...
    def highest_of(self, epoch: int) -> int | None: ...
    def append(self, epoch: int, entries: Sequence[Entry]) -> None: ...
    def raise_progress(self, known: Iterable[tuple[str, int, int]]) -> None: ...
    def make_room(self, length: int, *, urgent: bool) -> Trimmed: ...
    def close(self) -> None: ...


class RedisLink:
    """The stream of one node. Only `open` connects; if the connection breaks later, the next call raises an error."""

    def __init__(self, url: str, variable: str, node: str) -> None:
        self.place = place_of(url)
        self._client = client_of(url, variable, on_connect=self._on_connect)
        self._node, self._stream = node, stream_of(node)
        self._opening = False

    def open(self) -> list[str]:
        """Connect, and register this node. Returns warnings about the server's settings; raises StoreUnavailableError for a
        replica."""
        self._opening = True
        try:
            with translated(self.place):
                self._client.execute_command("SADD", NODES, self._node)
                return risky_settings(self.place, self._info())
        finally:
            self._opening = False

    def _on_connect(self, connection: Any) -> None:
        """Refuse to reconnect outside of `open`. redis-py would replace a broken connection silently, and entries that
        Redis lost at that moment would become a gap in the stream."""
        if not self._opening:
            raise redis.ConnectionError("the connection broke")
        connection.on_connect()

    def _info(self) -> dict[str, Any]:
        """The server's INFO; empty if the configured user may not run it."""
        try:
            return dict(self._client.info())
        except (redis.exceptions.NoPermissionError, redis.ResponseError):
            return {}

    def last_id(self) -> EntryId | None:
        """The newest id that the stream ever had, even if that entry was trimmed; None if there is no stream."""
        with translated(self.place):
            pipeline = self._client.pipeline(transaction=False)
            pipeline.execute_command("EXISTS", self._stream)
            pipeline.execute_command("XINFO STREAM", self._stream)
            exists, info = pipeline.execute(raise_on_error=False)
            if isinstance(exists, Exception):
                raise exists
            if not exists:
                return None
            if isinstance(info, Exception):
                raise info
            return EntryId.parse(info["last-generated-id"])

    def highest_of(self, epoch: int) -> int | None:
        """The highest number in the stream under this epoch; None if there is none."""
        with translated(self.place):
            newest, oldest = EntryId(epoch, _MAX_SEQUENCE), EntryId(epoch, 0)
            rows = self._client.execute_command("XREVRANGE", self._stream, str(newest), str(oldest), "COUNT", 1)
            return EntryId.parse(rows[0][0]).sequence if rows else None

    def append(self, epoch: int, entries: Sequence[Entry]) -> None:
        """Write the entries and their progress in one transaction: after an error all or none of them are stored."""
        pipeline = self._client.pipeline(transaction=True)
        for entry in entries:
            pipeline.execute_command("XADD", self._stream, str(EntryId(epoch, entry.sequence)), *entry.to_fields())
        _raise_progress(pipeline, [(key, *known) for key, known in furthest(entries).items()])
        with translated(self.place):
            pipeline.execute()

    def raise_progress(self, known: Iterable[tuple[str, int, int]]) -> None:
        """Raise progress: job key, steps done, wall clock in milliseconds. Higher values in Redis are kept."""
        rows = list(known)
        with translated(self.place):
            for start in range(0, len(rows), _MOST_AT_ONCE):
                pipeline = self._client.pipeline(transaction=True)
                _raise_progress(pipeline, rows[start : start + _MOST_AT_ONCE])
                pipeline.execute()

    def make_room(self, length: int, *, urgent: bool) -> Trimmed:
        """Trim the stream to about `length` entries; see trimming.make_room."""
        return make_room(self._client, self.place, self._node, length, urgent=urgent)

    def close(self) -> None:
        """Close the connections; the next `open` makes a new one (after a fail-over: to the new primary)."""
        self._client.close()
        self._client.connection_pool.disconnect()


def _raise_progress(pipeline: Any, known: list[tuple[str, int, int]]) -> None:
    """With GT, an outbox that is behind can't lower progress."""
    if known:
        pipeline.execute_command("ZADD", PROGRESS, "GT", *[part for key, steps, _ in known for part in (steps, key)])
        pipeline.execute_command("ZADD", SEEN, "GT", *[part for key, _, seen_ms in known for part in (seen_ms, key)])


def risky_settings(place: str, info: dict[str, Any]) -> list[str]:
    """Warnings about settings with which Redis may lose data. Raises StoreUnavailableError for a read-only replica.

    Source: redis.io, "Key eviction" and "Redis persistence".
    """
    if info.get("role") == "slave":
        raise StoreUnavailableError(place, "read-only", "it is a read-only replica: give the address of the primary")
    problems = []
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        problems.append(f"maxmemory-policy {policy} lets Redis delete progress; set noeviction")
    if info.get("aof_enabled", 1) == 0:
        problems.append("appendonly no lets Redis lose events when it ends; set appendonly yes")
    return [f"{place}: {'; '.join(problems)}"] if problems else []
