"""The order and the times in which keys are handed out, on a clock that the tests set."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.controllers.work_queue import WorkQueue


class Desk:
    """A queue on a clock of its own; `take` gives None where nobody's time has come."""

    def __init__(self, settle_s: float = 1.0) -> None:
        self.now_s = 100.0
        self.queue = WorkQueue(settle_s, lambda: self.now_s)

    async def take(self) -> str | None:
        try:
            async with asyncio.timeout(0):
                return await self.queue.take()
        except TimeoutError:
            return None

    async def work(self) -> str | None:
        """Take, and be done at once."""
        key = await self.take()
        if key is not None:
            self.queue.done(key)
        return key


def play(story: Callable[[Desk], Awaitable[None]], settle_s: float = 1.0) -> None:
    async def run() -> None:
        await story(Desk(settle_s))

    asyncio.run(run())


def test_the_first_news_is_answered_at_once_and_more_of_it_together() -> None:
    async def story(at: Desk) -> None:
        at.queue.add("a")
        assert await at.work() == "a"
        for _ in range(5):
            at.now_s += 0.1
            at.queue.add("a")
        assert await at.take() is None
        at.now_s = 101.0
        assert await at.work() == "a"
        assert await at.take() is None and len(at.queue) == 0

    play(story)


def test_others_do_not_wait_for_one_that_rests() -> None:
    async def story(at: Desk) -> None:
        at.queue.add("a")
        await at.work()
        at.queue.add("a")
        at.queue.add("b")
        assert await at.take() == "b"

    play(story)


def test_what_is_being_looked_at_is_not_handed_out_again_before_it_is_done() -> None:
    async def story(at: Desk) -> None:
        at.queue.add("a")
        assert await at.take() == "a"
        at.queue.add("a")
        at.now_s += 10
        assert await at.take() is None
        at.queue.done("a")
        assert await at.take() == "a"
        at.queue.done("a")
        assert await at.take() is None

    play(story)


@pytest.mark.parametrize("times", [(5.0, 2.0), (2.0, 5.0)])
def test_the_earliest_time_counts(times: tuple[float, float]) -> None:
    async def story(at: Desk) -> None:
        for after_s in times:
            at.queue.add("a", after_s)
        at.now_s += 1.9
        assert await at.take() is None
        at.now_s += 0.2
        assert await at.work() == "a"
        at.now_s += 10
        assert await at.take() is None

    play(story)


def test_who_waits_is_woken_by_news_and_by_time() -> None:
    async def story(_: Desk) -> None:
        loop = asyncio.get_running_loop()
        queue = WorkQueue(0.0, loop.time)
        for after_s in (0.0, 0.02):
            taking = asyncio.create_task(queue.take())
            await asyncio.sleep(0)
            queue.add("a", after_s)
            assert await asyncio.wait_for(taking, 5) == "a"
            queue.done("a")

    play(story)


steps = st.lists(
    st.tuples(st.sampled_from(("add", "later", "take", "done", "time")), st.sampled_from("abc")), max_size=40
)


@given(steps)
def test_no_news_is_lost_and_nobody_is_looked_at_twice_at_a_time(history: list[tuple[str, str]]) -> None:
    """After the last news of each key there is a look, and no two looks overlap or begin within the settling time."""

    async def story(at: Desk) -> None:
        owed: set[str] = set()
        busy: set[str] = set()
        began: dict[str, float] = {}

        async def look() -> None:
            key = await at.take()
            if key is not None:
                assert key not in busy and at.now_s >= began.get(key, 0.0) + 1.0
                began[key] = at.now_s
                busy.add(key)
                owed.discard(key)

        for what, key in history:
            if what in ("add", "later"):
                at.queue.add(key, 2.5 if what == "later" else 0.0)
                owed.add(key)
            elif what == "take":
                await look()
            elif what == "done" and key in busy:
                busy.remove(key)
                at.queue.done(key)
            elif what == "time":
                at.now_s += 0.7
        for _ in range(4):
            for key in sorted(busy):
                busy.remove(key)
                at.queue.done(key)
            at.now_s += 3
            for _ in range(3):
                await look()
        assert not owed and len(at.queue) == 0

    play(story)
