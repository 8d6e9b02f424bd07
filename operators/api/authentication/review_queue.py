"""Limits on reviews at the API server, so that no caller keeps the others from being answered."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

from operators.api.replies.problems import BusyError

T = TypeVar("T")


class ReviewQueue:
    """Runs at most `at_once` reviews at the same time, in order of arrival.

    `most` may be queued or running, `most_each` of them of one caller. A review beyond that is refused with BusyError, so that a
    flood of requests ends in refusals and not in a growing queue.
    """

    def __init__(self, *, at_once: int, most: int, most_each: int) -> None:
        self._most, self._most_each = most, most_each
        self._running = asyncio.Semaphore(at_once)
        self._queued: Counter[str] = Counter()

    async def run(self, caller: str, review: Callable[[], Awaitable[T]]) -> T:
        """The result of `review`. Raises BusyError, and what the review raises."""
        if self._queued.total() >= self._most or self._queued[caller] >= self._most_each:
            raise BusyError("too many requests wait for the API server to check tokens and rights; try again later")
        self._queued[caller] += 1
        try:
            async with self._running:
                return await review()
        finally:
            self._queued[caller] -= 1
            if not self._queued[caller]:
                del self._queued[caller]
