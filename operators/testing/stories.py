"""Tells a story beside a running controller: starts it, ends it whatever happens, waits for what comes true."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from operators.kube.client import KubeApi

WITHIN_S = 90.0


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None], api: KubeApi) -> AsyncIterator[None]:
    """`work` goes on until the end of the block, then it is cancelled and `api` closed."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        await api.close()


async def until(condition: Callable[[], Any]) -> None:
    """Asks in a thread, since the question may be a request. Raises TimeoutError after WITHIN_S."""
    async with asyncio.timeout(WITHIN_S):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.02)
