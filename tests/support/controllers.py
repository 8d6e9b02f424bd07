"""Runs a controller during a block of a test, and waits for conditions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from operators.kube.client import KubeApi

WITHIN_S = 90.0


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None], api: KubeApi) -> AsyncIterator[None]:
    """Run `work` during the block; at its end `work` is cancelled and `api` closed, also after an exception."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        await api.close()


async def until(condition: Callable[[], Any]) -> None:
    """Wait until `condition` is true. It runs in a thread because it may send a request. Raises TimeoutError after WITHIN_S."""
    async with asyncio.timeout(WITHIN_S):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.02)
