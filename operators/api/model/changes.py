"""The latest changes in order, so that a stream continues after a lost connection.

An id is `<epoch>-<number>`: numbers grow by one, and each start of the program has another epoch. A client that asks for changes
that were dropped, or of another epoch, gets a `reset` and must read everything again.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["job", "device", "node", "reset"]
MOST_KEPT = 20_000
_ID = re.compile(r"([0-9a-f]{1,32})-([0-9]{1,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Change:
    """`subject`: the uid of a job, the id of a device, the name of a node. `namespace`: of a job; others have none."""

    number: int
    kind: Kind
    subject: str = ""
    namespace: str = ""


class Changes:
    """The source adds changes, any number of streams read them at their own pace; all in one event loop."""

    def __init__(self, epoch: str, most: int = MOST_KEPT) -> None:
        self._epoch = epoch
        self._changes: deque[Change] = deque(maxlen=most)
        self._last = 0
        self._added = asyncio.Event()

    @property
    def last(self) -> int:
        """The newest number; 0: no change since the start."""
        return self._last

    def add(self, kind: Kind, subject: str = "", namespace: str = "") -> None:
        """Adds a change and wakes waiting readers."""
        self._last += 1
        self._changes.append(Change(self._last, kind, subject, namespace))
        self._added.set()
        self._added = asyncio.Event()

    def id_of(self, number: int) -> str:
        """The id of the change with this number."""
        return f"{self._epoch}-{number}"

    def number_of(self, text: str) -> int | None:
        """The number in an id; None for an id of another epoch, or if a change after it was dropped."""
        match = _ID.fullmatch(text)
        if match is None or match[1] != self._epoch:
            return None
        number = int(match[2])
        return number if self._first() - 1 <= number <= self._last else None

    def after(self, number: int) -> Iterator[Change] | None:
        """The changes after this one; None if some of them were dropped."""
        if number < self._first() - 1:
            return None
        return (change for change in list(self._changes)[max(0, len(self._changes) - (self._last - number)) :])

    async def wait(self, number: int) -> None:
        """Returns when there is a change after this one."""
        while self._last <= number:
            await self._added.wait()

    def _first(self) -> int:
        return self._changes[0].number if self._changes else self._last + 1
