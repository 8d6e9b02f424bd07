"""Deletes entries of a stream: those that every reader has acknowledged, or the oldest if no group reads the stream.

Redis keeps events for ever by default, and MAXLEN at each write would delete events that a slow reader hasn't read. Each
node's shipper trims its own stream; `python -m sharing_manager.store.trim` does it by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sharing_manager.settings import LEAST_STREAM_LENGTH as LEAST_LENGTH
from sharing_manager.store.client import Client
from sharing_manager.store.entries import PROGRESS, SEEN, EntryId, stream_of
from sharing_manager.store.redis_errors import translated


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The result for one stream: the number of deleted entries, and why no more were deleted."""

    stream: str
    removed: int
    reason: str


Group = tuple[EntryId, EntryId | None]
"""The position of a group: its last delivered id, and its oldest pending id (None if it has acknowledged everything)."""


def slowest(groups: Mapping[str, Group]) -> tuple[EntryId, str] | None:
    """The id before which every group has acknowledged everything, and the name of a group that still needs that entry."""
    needed = [
        (delivered if pending is None else min(delivered, pending), name)
        for name, (delivered, pending) in groups.items()
    ]
    return min(needed, default=None)


def make_room(client: Client, place: str, node: str, length: int, *, urgent: bool = False) -> Trimmed:
    """Trim one node's stream if it has more than `length` entries. With `urgent`, Redis is out of memory: if no group
    reads the stream, only its newer half is kept, but at least LEAST_LENGTH entries. Raises StoreUnavailableError."""
    with translated(place):
        entries = int(client.execute_command("XLEN", stream_of(node)))
    if urgent:
        length = min(length, max(LEAST_LENGTH, entries // 2))
    if entries <= length:
        return Trimmed(stream_of(node), 0, f"it has no more than {length} entries")
    return trim(client, place, node, max_length=length)


def trim(client: Client, place: str, node: str, *, max_length: int | None = None) -> Trimmed:
    """Trim one node's stream. `max_length` applies only if no group reads it. Raises StoreUnavailableError.

    XTRIM's `~` deletes only whole blocks, which is cheap; up to a hundred more entries stay. Without LIMIT 0 it would stop
    after a hundred blocks (redis.io, XTRIM), and a busy node fills as many in a second.
    """
    stream = stream_of(node)
    with translated(place):
        if not client.execute_command("EXISTS", stream):
            return Trimmed(stream, 0, "there is no such stream")
        groups = client.execute_command("XINFO GROUPS", stream)
        last = slowest({group["name"]: _group(client, stream, group) for group in groups})
        if last is not None:
            return _trim_acknowledged(client, stream, *last)
        if max_length is None:
            return Trimmed(stream, 0, "no group reads it; give --max-length to trim it")
        removed = int(client.execute_command("XTRIM", stream, "MAXLEN", "~", max_length, "LIMIT", 0))
        return Trimmed(stream, removed, f"no group reads it; about {max_length} entries stay")


def _trim_acknowledged(client: Client, stream: str, limit: EntryId, group: str) -> Trimmed:
    removed = int(client.execute_command("XTRIM", stream, "MINID", "~", str(limit), "LIMIT", 0))
    fix = f"start its reader, or delete the group if it isn't used any more (XGROUP DESTROY {stream} {group})"
    reason = f"all groups have acknowledged what is before {limit}; group {group!r} needs the rest: {fix}"
    return Trimmed(stream, removed, reason)


def _group(client: Client, stream: str, group: Mapping[str, Any]) -> Group:
    pending = client.execute_command("XPENDING", stream, group["name"])
    oldest = EntryId.parse(pending["min"]) if pending["pending"] else None
    return EntryId.parse(group["last-delivered-id"]), oldest


def forget_progress(client: Client, place: str, before_ms: int) -> int:
    """Delete the progress of jobs without an event since `before_ms`. Returns the number of jobs.

    A job that resumes at the same moment loses nothing: its next event has all its steps. Raises StoreUnavailableError.
    """
    with translated(place):
        keys = client.execute_command("ZRANGEBYSCORE", SEEN, "-inf", f"({before_ms}")
        for start in range(0, len(keys), 500):
            pipeline = client.pipeline(transaction=True)
            pipeline.execute_command("ZREM", PROGRESS, *keys[start : start + 500])
            pipeline.execute_command("ZREM", SEEN, *keys[start : start + 500])
            pipeline.execute()
        return len(keys)
