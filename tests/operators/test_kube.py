"""The way to the API server, without one."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import Cluster, User
from lightkube.resources.core_v1 import Node

from operators.kube import KubeApi


@pytest.mark.parametrize("turns", range(6))
def test_a_watch_ends_when_it_is_cancelled_as_news_comes(turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever comes first in the loop: a cancellation that is lost leaves the program waiting for ever."""

    async def play() -> None:
        news: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()

        async def told(*_: Any, **__: Any) -> AsyncIterator[tuple[str, dict[str, Any]]]:
            while True:
                yield await news.get()

        api = KubeApi(KubeConfig.from_one(cluster=Cluster(server="http://127.0.0.1:1"), user=User()).get())
        monkeypatch.setattr(api._client, "watch", told)

        async def follow() -> None:
            async for _ in api.watch(Node, "1"):
                pass

        following = asyncio.create_task(follow())
        await asyncio.sleep(0.01)
        news.put_nowait(("ADDED", {}))
        for _ in range(turns):
            await asyncio.sleep(0)
        following.cancel()
        _, late = await asyncio.wait({following}, timeout=1)
        assert not late and following.cancelled()

    asyncio.run(play())
