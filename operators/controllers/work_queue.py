"""Keys of objects to reconcile: each waits once however often it is added, and is never reconciled twice at the same time.

The queue decouples watches from reconciliation, so that a change costs the reconciliation of one object. It doesn't record what
happened to an object: a reconciliation reads its state from the cache.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable


class WorkQueue:
    """For one consumer. A key is handed out at once, and then not again within `settle_s` seconds.

    So the first change of an object is reconciled without delay, and the changes that follow closely in one go.
    """

    def __init__(self, settle_s: float, now_s: Callable[[], float]) -> None:
        self._settle_s, self._now_s = settle_s, now_s
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._numbers = itertools.count()  # of two keys due at the same time the one added first comes first
        self._busy: set[str] = set()
        self._rests: dict[str, float] = {}
        self._rested: deque[tuple[float, str]] = deque()
        self._news = asyncio.Event()

    def __len__(self) -> int:
        """The number of waiting keys, due or not."""
        return len(self._due)

    def add(self, key: str, after_s: float = 0.0) -> None:
        """Reconcile this key in `after_s` seconds at the latest; an earlier due time stays."""
        now_s = self._now_s()
        due_s = max(now_s + after_s, self._rests.get(key, now_s))
        if due_s >= self._due.get(key, float("inf")):
            return
        self._due[key] = due_s
        self._push(key)

    async def take(self) -> str:
        """The next key that is due; it is not handed out again until `done`."""
        while True:
            key, wait_s = self._next()
            if key:
                return key
            self._news.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
            except TimeoutError:
                continue

    def done(self, key: str) -> None:
        """Its reconciliation has ended; the key is handed out again if it was added in the meantime."""
        self._busy.discard(key)
        if key in self._due:
            self._push(key)

    def _push(self, key: str) -> None:
        if key not in self._busy:  # else `done` pushes it
            heapq.heappush(self._heap, (self._due[key], next(self._numbers), key))
            self._news.set()

    def _next(self) -> tuple[str, float | None]:
        """A key; or an empty one and the seconds until the next is due, None where none waits."""
        now_s = self._now_s()
        while self._rested and self._rested[0][0] <= now_s:
            self._rests.pop(self._rested.popleft()[1], None)
        while self._heap:
            due_s, _, key = self._heap[0]
            if self._due.get(key) == due_s and key not in self._busy:
                if due_s > now_s:
                    return "", due_s - now_s
                self._hand_out(key, now_s)
                heapq.heappop(self._heap)
                return key, None
            heapq.heappop(self._heap)  # has an earlier due time by now, or `done` pushes it again
        return "", None

    def _hand_out(self, key: str, now_s: float) -> None:
        del self._due[key]
        self._busy.add(key)
        self._rests[key] = now_s + self._settle_s
        self._rested.append((self._rests[key], key))
