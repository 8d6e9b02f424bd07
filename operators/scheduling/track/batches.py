"""Jobs of one batch are passed to the policy in one event: a policy that saw the first few of forty would start the wrong ones.

The annotation BATCH of an EmuJob names its batch and the number of its jobs. The jobs wait for each other until the controller
has made all of them ready, and all count as submitted when the first of them was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from operators.objects.emujob import EmuJob
from operators.objects.names import BATCH
from operators.scheduling.see.job_objects import submitted_at

MAX_WAIT_S = 30.0
"""How long jobs wait for the rest of their batch, which may never be created."""
_MOST_JOBS = 1_000_000
_UNREADY = ("", "Pending")


@dataclass(frozen=True, slots=True)
class Batch:
    """`text`: the annotation, a name, a slash and the number of jobs, such as monday/40."""

    namespace: str
    text: str

    @property
    def size(self) -> int:
        number = self.text.rpartition("/")[2]
        return int(number) if number.isascii() and number.isdigit() and len(number) < len(str(_MOST_JOBS)) else 0


def batch_of(emujob: EmuJob) -> Batch | None:
    """The batch of a job; None for a single job, or if the annotation can't be read."""
    batch = Batch(emujob.key.namespace, emujob.annotations.get(BATCH, ""))
    return batch if batch.size > 1 else None


@dataclass(slots=True)
class _Members:
    """The existing jobs of a batch by uid: `submitted` has their submission times, `ready` those that are ready.

    `waiting`: names (namespace/name) of jobs that wait for the rest. `released_at`: the submission time of the first job, RFC
    3339, once the batch has been released; None while it waits.
    """

    submitted: dict[str, str] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    released_at: str | None = None

    def release(self) -> None:
        if self.released_at is None:
            self.released_at = min((time for time in self.submitted.values() if time), default="")


class Batches:
    """All batches. `changed` is called when a batch is released because the rest of it did not come in time.

    A batch is forgotten with its last job, so that its name may be used again.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._members: dict[Batch, _Members] = {}

    def heard(self, before: EmuJob | None, after: EmuJob | None) -> None:
        """The store's callback for an EmuJob that was added, changed or deleted."""
        new = batch_of(after) if after is not None else None
        if after is not None and new is not None:
            members, uid = self._members.setdefault(new, _Members()), after.key.uid
            members.submitted[uid] = submitted_at(after)
            (members.ready.discard if after.phase in _UNREADY else members.ready.add)(uid)
        old = batch_of(before) if before is not None else None
        if before is not None and old is not None and (new != old or after is None or after.key.uid != before.key.uid):
            self._remove(old, before.key.uid)

    def is_released(self, emujob: EmuJob) -> bool:
        """Whether the job may be passed to the policy now. If not, `take_released` names it later."""
        batch = batch_of(emujob)
        members = self._members.get(batch) if batch is not None else None
        if batch is None or members is None or self._complete(batch, members):
            return True
        if not members.waiting:
            asyncio.get_running_loop().call_later(MAX_WAIT_S, self._give_up, batch, members)
        members.waiting.add(str(emujob.key))
        return False

    def take_released(self) -> set[str]:
        """The names of jobs that had to wait and were released since the last call."""
        released: set[str] = set()
        for batch, members in self._members.items():
            if members.waiting and self._complete(batch, members):
                released |= members.waiting
                members.waiting.clear()
        return released

    def submitted(self, emujob: EmuJob) -> str:
        """The job's submission time, RFC 3339: that of its batch once the batch is released; empty if it isn't known yet."""
        batch, own = batch_of(emujob), submitted_at(emujob)
        members = self._members.get(batch) if batch is not None else None
        if not own or batch is None or members is None or not self._complete(batch, members):
            return own
        return members.released_at or own

    def _complete(self, batch: Batch, members: _Members) -> bool:
        if len(members.ready) >= batch.size:
            members.release()
        return members.released_at is not None

    def _remove(self, batch: Batch, uid: str) -> None:
        members = self._members[batch]
        members.submitted.pop(uid, None)
        members.ready.discard(uid)
        if not members.submitted:
            del self._members[batch]

    def _give_up(self, batch: Batch, members: _Members) -> None:
        if self._members.get(batch) is members and members.released_at is None:
            members.release()
            self._changed()
