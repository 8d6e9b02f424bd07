"""Decides where shipping continues after a connection was made, from the state of Redis and of the outbox.

Redis may have lost entries that it had confirmed (a crash with `appendfsync everysec`, a fail-over, an empty replacement).
The outbox may have lost entries that it had sent (a power cut: its file isn't synced at each commit). In neither case may
an event count as shipped only because its id is smaller than another one's. One failure at a time is handled: it isn't
noticed if Redis loses entries of an earlier epoch, or loses entries while a second manager writes under the same name.
"""

from __future__ import annotations

from dataclasses import dataclass

from sharing_manager.store.entries import EntryId


@dataclass(frozen=True, slots=True)
class Position:
    """The outbox's record of shipping: entries up to `shipped` are in Redis as far as it knows, and those up to `sent`
    may be.

    Entries up to `base` were shipped under an earlier epoch.
    """

    epoch: int
    sent: int = 0
    shipped: int = 0
    base: int = 0


@dataclass(frozen=True, slots=True)
class Resumption:
    """How to continue. `behind`: Redis has fewer entries than it had confirmed. `note`: a message for people."""

    position: Position
    behind: bool = False
    note: str = ""


def resume(position: Position, last: EntryId | None, own: int | None, now_ms: int) -> Resumption:
    """Compare the outbox with its stream.

    `last` is the stream's last generated id (None: no stream). `own` is the highest number in the stream under this
    outbox's epoch (None: none). `now_ms` is the wall clock in milliseconds since 1970.
    """
    epoch, sent, shipped, base = position.epoch, position.sent, position.shipped, position.base
    if last is not None and last.epoch > epoch:
        new_epoch, known = max(now_ms, last.epoch + 1), max(shipped, own or 0)
        note = "the stream holds events of a newer event log of this node (a second manager, or the clock went back)"
        return Resumption(Position(new_epoch, max(sent, known), known, known), note=note)
    if last is not None and last.epoch == epoch and last.sequence > sent:
        new_epoch = max(now_ms, epoch + 1)
        note = "the stream holds events that this node's event log has lost (a power cut?)"
        return Resumption(Position(new_epoch, sent, sent, sent), note=note)
    if last is None:
        base = in_redis = 0
    else:
        in_redis = last.sequence if last.epoch == epoch else base
    note = "Redis has lost events that it had confirmed" if in_redis < shipped else ""
    return Resumption(Position(epoch, sent, in_redis, base), in_redis < shipped, note)
