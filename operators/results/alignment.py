"""Puts the consumer group where the operator's store is: the store counts, not what Redis remembers of it.

Each may have lost its last seconds, or everything, without the other: a new volume for the store, a Redis that crashed. An
event that is read again does no harm, one that isn't is a gap; so the group goes back wherever it is ahead of the store.
"""

from __future__ import annotations

from collections.abc import Callable

from emulator_runtime.domain.errors import ProtocolError
from sharing_manager.store.client import Client
from sharing_manager.store.entries import NODES, Entry, EntryId, stream_of
from sharing_manager.store.reader import Delivery
from sharing_manager.store.troubles import translated

_START = EntryId(0, 0)
_PENDING_AT_ONCE = 500


def start_of(known: EntryId | None, given: EntryId, last: EntryId) -> EntryId | None:
    """After which id the group must go on; None: where it is.

    `known` is the newest id in the store (None: it has nothing of this stream), `given` the newest that Redis gave the group,
    `last` the newest that the stream ever had, as far as Redis remembers.
    """
    if known is None or known > last:  # a stream that began anew may tell other things under lower ids
        return _START if given > _START else None
    return known if given > known else None


def align(client: Client, place: str, group: str, position: Callable[[str], tuple[int, int] | None]) -> list[str]:
    """Set the group back where needed; answers a sentence for each stream where it was. Raises StoreAwayError."""
    told = []
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
                told.append(f"{place}: {stream} is read again from {start} on: it was given up to {given}")
    return told


def _given(client: Client, stream: str, group: str) -> EntryId | None:
    """The newest id that the group was given; None where there is no such stream or group yet."""
    if not client.execute_command("EXISTS", stream):
        return None
    groups = {found["name"]: found["last-delivered-id"] for found in client.execute_command("XINFO GROUPS", stream)}
    return EntryId.parse(groups[group]) if group in groups else None


def malformed(client: Client, place: str, group: str, consumer: str) -> list[Delivery]:
    """Of what this consumer was given and hasn't acknowledged: the entries that are no events (somebody else wrote them).

    The reader stumbles over each of them for ever; to be counted and acknowledged. Raises StoreAwayError.
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
