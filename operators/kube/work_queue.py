"""Keys that wait to be looked at: each once however often it was added, never by two at a time, and not again at once.

It stands between watches and work, and makes the cost of a change that of one object. Nothing is remembered of what happened
to a key, only that it must be looked at: whoever takes it looks at what is there then.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable


class WorkQueue:
    """For one taker. Seconds: a key is handed out at once, and then not again before `settle_s` have passed since.

    So the first news of an object is answered without delay, and what follows on its heels in one go.
    """

    def __init__(self, settle_s: float, now_s: Callable[[], float]) -> None:
        self._settle_s, self._now_s = settle_s, now_s
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._numbers = itertools.count()  # of equal times the first added comes first
        self._busy: set[str] = set()
        self._rests: dict[str, float] = {}
        self._rested: deque[tuple[float, str]] = deque()
        self._news = asyncio.Event()

    def __len__(self) -> int:
        """How many keys wait, whether it's their time or not."""
        return len(self._due)

    def add(self, key: str, after_s: float = 0.0) -> None:
        """Look at it, in `after_s` seconds at the latest; an earlier time that was asked for stays."""
        now_s = self._now_s()
        due_s = max(now_s + after_s, self._rests.get(key, now_s))
        if due_s >= self._due.get(key, float("inf")):
            return
        self._due[key] = due_s
        self._push(key)

    async def take(self) -> str:
        """The next key whose time has come; it is the taker's until `done`."""
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
        """It may be handed out again; it will be where it was added in the meantime."""
        self._busy.discard(key)
        if key in self._due:
            self._push(key)

    def _push(self, key: str) -> None:
        if key not in self._busy:  # `done` does it then
            heapq.heappush(self._heap, (self._due[key], next(self._numbers), key))
            self._news.set()

    def _next(self) -> tuple[str, float | None]:
        """A key, or none and how long until the next one's time; None: there is none."""
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
            heapq.heappop(self._heap)  # was asked for earlier since, or is pushed anew when it's done
        return "", None

    def _hand_out(self, key: str, now_s: float) -> None:
        del self._due[key]
        self._busy.add(key)
        self._rests[key] = now_s + self._settle_s
        self._rested.append((self._rests[key], key))
