"""Jobs that were submitted together are told together: a policy that saw the first few of forty would start the wrong ones.

An EmuJob says with an annotation to which batch it belongs and how many there are of it (BATCH). Its jobs wait for each other
until their controller has made all of them ready, and count as submitted when the first of them was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from operators.scheduling.names import BATCH
from operators.scheduling.see.job_objects import ScheduledEmuJob

PATIENCE_S = 30.0
"""So long jobs wait for the rest of their batch, which may never come."""
_MOST = 1_000_000
_UNREADY = ("", "Pending")


@dataclass(frozen=True, slots=True)
class Batch:
    """`text` as in the annotation: a name, a slash and how many jobs it has."""

    namespace: str
    text: str

    @property
    def size(self) -> int:
        number = self.text.rpartition("/")[2]
        return int(number) if number.isascii() and number.isdigit() and len(number) < len(str(_MOST)) else 0


def batch_of(order: ScheduledEmuJob) -> Batch | None:
    """The batch of a job; None for one that stands alone, or whose annotation can't be read."""
    batch = Batch(order.key.namespace, order.annotations.get(BATCH, ""))
    return batch if batch.size > 1 else None


@dataclass(slots=True)
class _Group:
    """The jobs of a batch that are there, by uid: when each was submitted, which are ready. `waiting`: names.

    `since`: when the first of them was submitted; None until the batch is waited for no longer.
    """

    submitted: dict[str, str] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    since: str | None = None

    def open(self) -> None:
        if self.since is None:
            self.since = min((time for time in self.submitted.values() if time), default="")


class Batches:
    """It hears of each job that is new, changed or gone; `changed` is called when a batch is waited for no longer.

    A batch is forgotten with its last job, so that its name may be used again.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._groups: dict[Batch, _Group] = {}

    def heard(self, before: ScheduledEmuJob | None, after: ScheduledEmuJob | None) -> None:
        """As a Store tells it."""
        new = batch_of(after) if after is not None else None
        if after is not None and new is not None:
            group, uid = self._groups.setdefault(new, _Group()), after.key.uid
            group.submitted[uid] = after.time("submittedAt")
            (group.ready.discard if after.phase in _UNREADY else group.ready.add)(uid)
        old = batch_of(before) if before is not None else None
        if before is not None and old is not None and (new != old or after is None or after.key.uid != before.key.uid):
            self._leave(old, before.key.uid)

    def may_come(self, order: ScheduledEmuJob) -> bool:
        """Whether its scheduler may hear of it now; else it waits until `released` names it."""
        batch = batch_of(order)
        group = self._groups.get(batch) if batch is not None else None
        if batch is None or group is None or self._is_open(batch, group):
            return True
        if not group.waiting:
            asyncio.get_running_loop().call_later(PATIENCE_S, self._give_up, batch, group)
        group.waiting.add(str(order.key))
        return False

    def released(self) -> set[str]:
        """The names of the jobs that waited and may come now."""
        found: set[str] = set()
        for batch, group in self._groups.items():
            if group.waiting and self._is_open(batch, group):
                found |= group.waiting
                group.waiting.clear()
        return found

    def submitted(self, order: ScheduledEmuJob) -> str:
        """When it was submitted, RFC 3339: with the first of its batch, once that came; empty where nobody has said so yet."""
        batch, own = batch_of(order), order.time("submittedAt")
        group = self._groups.get(batch) if batch is not None else None
        if not own or batch is None or group is None or not self._is_open(batch, group):
            return own
        return group.since or own

    def _is_open(self, batch: Batch, group: _Group) -> bool:
        if len(group.ready) >= batch.size:
            group.open()
        return group.since is not None

    def _leave(self, batch: Batch, uid: str) -> None:
        group = self._groups[batch]
        group.submitted.pop(uid, None)
        group.ready.discard(uid)
        if not group.submitted:
            del self._groups[batch]

    def _give_up(self, batch: Batch, group: _Group) -> None:
        if self._groups.get(batch) is group and group.since is None:
            group.open()
            self._changed()
