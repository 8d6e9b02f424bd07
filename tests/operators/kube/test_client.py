"""The way to the API server, without one."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import Cluster, User
from lightkube.core.exceptions import ApiError
from lightkube.resources.core_v1 import Node

from emulator_runtime.domain.errors import ClusterError
from operators.kube.api import ForbiddenError
from operators.kube.client import KubeApi, configured, translated


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
        _, late = await asyncio.wait({following}, timeout=20)
        assert not late and following.cancelled()

    asyncio.run(play())


@pytest.mark.parametrize(
    ("code", "message", "rights"),
    [
        (403, 'pods "a" is forbidden: User "u" cannot patch resource "pods/resize" in API group ""', True),
        (401, "Unauthorized", True),
        (403, 'pods "a" is forbidden: exceeded quota: q, requested: requests.cpu=2', False),
    ],
)
def test_only_a_right_that_is_missing_is_sought_in_the_chart(code: int, message: str, rights: bool) -> None:
    """Quotas and other admissions forbid with the same status."""
    status = {"kind": "Status", "code": code, "message": message, "status": "Failure"}
    response = httpx2.Response(code, json=status, request=httpx2.Request("PATCH", "http://x"))
    found = translated(ApiError(response.request, response), "patch pods a")
    assert isinstance(found, ForbiddenError) and str(found).startswith(f"patch pods a: {message}")
    assert ("RBAC" in str(found)) is rights


CLUSTER = "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'%s}}]\n"
REST = (
    "contexts: [{name: c, context: {cluster: %s, user: u}}]\nusers: [{name: u, user: {token: t}}]\ncurrent-context: c\n"
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("# a\nb: c: d\n", "mapping values are not allowed here"),
        ("job_id,submit_s\n", "its clusters, contexts and users aren't lists"),
        ("clusters: 5\n", "its clusters, contexts and users aren't lists"),
        ("{}\n", "it has no 'clusters'"),
        ("clusters: [{name: c, cluster: {server: 5}}]\n" + REST % "c", "Expected `str`, got `int`"),
        (CLUSTER % "" + REST % "other", "it has no 'other'"),
        (CLUSTER % ", certificate-authority: '/nowhere/ca'" + REST % "c", "No such file"),
        (CLUSTER % "" + "contexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n", "Missing user"),
        ("\udcff", "can't decode byte"),
    ],
)
@pytest.mark.parametrize("told", [True, False])
def test_a_file_that_is_no_kubeconfig_is_named_in_one_line(
    text: str, words: str, told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether an option or the environment names it."""
    file = tmp_path / "config"
    file.write_text(text, encoding="utf-8", errors="surrogateescape")
    monkeypatch.setenv("KUBECONFIG", "/nowhere" if told else str(file))
    with pytest.raises(ClusterError) as failure:
        KubeApi(configured(file) if told else None)
    message = str(failure.value)
    assert f"{file} can't be used as a kubeconfig" in message and words in message and "--kubeconfig" in message
    assert "\n" not in message


def test_a_whole_kubeconfig_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(CLUSTER % "" + REST % "c", encoding="utf-8")
    config = configured(file)
    assert config.cluster.server == "https://127.0.0.1:1" and asyncio.run(_open_and_close(config)) is None


async def _open_and_close(config: Any) -> None:
    await KubeApi(config).close()
