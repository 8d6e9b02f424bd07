"""Where shipping goes on after a connection was made: from what Redis has and what the outbox remembers.

Redis may have lost what it confirmed (a crash with `appendfsync everysec`, a fail-over, an empty replacement); the outbox
may have lost what it sent (a power cut: its file isn't synced at each commit). In neither case may an event be taken for
shipped because its id is smaller than another one's. One failure at a time: what Redis loses of an earlier epoch, or
while a second manager writes under the same name, isn't noticed.
"""

from __future__ import annotations

from dataclasses import dataclass

from sharing_manager.store.entries import EntryId


@dataclass(frozen=True, slots=True)
class Position:
    """An outbox's memory: entries up to `shipped` are in Redis as far as it knows, up to `sent` they may be.

    Those up to `base` went there under an earlier epoch.
    """

    epoch: int
    sent: int = 0
    shipped: int = 0
    base: int = 0


@dataclass(frozen=True, slots=True)
class Resumption:
    """How to go on; `behind`: Redis has fewer entries than it had confirmed; `note`: what a person should know."""

    position: Position
    behind: bool = False
    note: str = ""


def resume(position: Position, last: EntryId | None, own: int | None, now_ms: int) -> Resumption:
    """Compare the outbox with its stream.

    `last` is the stream's last generated id (None: no stream), `own` the highest number that stands in the stream under
    this outbox's epoch (None: none). `now_ms` is the wall clock, milliseconds since 1970.
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
        base = there = 0
    else:
        there = last.sequence if last.epoch == epoch else base
    note = "Redis has lost events that it had confirmed" if there < shipped else ""
    return Resumption(Position(epoch, sent, there, base), there < shipped, note)
