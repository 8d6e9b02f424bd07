"""Jobs that were submitted together are told together: a policy that saw the first few of forty would start the wrong ones.

An EmuJob says with an annotation to which batch it belongs and how many there are of it (BATCH). Its jobs wait for each other
until their controller has made all of them ready, and count as submitted when the first of them was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from operators.scheduling.names import BATCH
from operators.scheduling.objects import Order

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


def batch_of(order: Order) -> Batch | None:
    """The batch of a job; None for one that stands alone, or whose annotation can't be read."""
    batch = Batch(order.key.namespace, order.annotations.get(BATCH, ""))
    return batch if batch.size > 1 else None


class Batches:
    """`orders` are all jobs that there are; `changed` is called when a batch is waited for no longer."""

    def __init__(self, orders: Callable[[], Iterable[Order]], changed: Callable[[], None]) -> None:
        self._orders, self._changed = orders, changed
        self._waiting: dict[Batch, set[str]] = {}
        self._open: dict[Batch, str] = {}
        """Those that are waited for no longer, and when the first job of each was submitted."""

    def may_come(self, order: Order) -> bool:
        """Whether its scheduler may hear of it now; else it waits until `released` names it."""
        batch = batch_of(order)
        if batch is None or self._is_open(batch):
            return True
        if batch not in self._waiting:
            asyncio.get_running_loop().call_later(PATIENCE_S, self._give_up, batch)
        self._waiting.setdefault(batch, set()).add(str(order.key))
        return False

    def released(self) -> set[str]:
        """The names of the jobs that waited and may come now."""
        ready = [batch for batch in self._waiting if self._is_open(batch)]
        return {key for batch in ready for key in self._waiting.pop(batch)}

    def submitted(self, order: Order) -> str:
        """When it was submitted, RFC 3339: with the first of its batch, once that came; empty where nobody has said so yet."""
        batch, own = batch_of(order), order.time("submittedAt")
        return self._open[batch] if own and batch is not None and self._is_open(batch) else own

    def _is_open(self, batch: Batch) -> bool:
        if batch not in self._open and sum(each.phase not in _UNREADY for each in self._members(batch)) >= batch.size:
            self._do_open(batch)
        return batch in self._open

    def _do_open(self, batch: Batch) -> None:
        self._open[batch] = min((t for each in self._members(batch) if (t := each.time("submittedAt"))), default="")

    def _members(self, batch: Batch) -> Iterable[Order]:
        return (order for order in self._orders() if batch_of(order) == batch)

    def _give_up(self, batch: Batch) -> None:
        if batch in self._waiting:
            self._do_open(batch)
            self._changed()
