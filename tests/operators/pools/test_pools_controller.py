"""The controller's shell on an API server in memory: what it does when things come, go and fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from emulator_runtime.domain.errors import ClusterError
from operators.kube.api import NODE, POOL, ApiAwayError, NotThereError
from operators.kube.informer import Pauses
from operators.pools.controller import Controller, PoolMetrics
from tests.support.fake_api import FakeApi

WALL_NS = 1_767_225_600_000_000_000  # 2026-01-01T00:00:00Z
QUICK = Pauses(settle=0.001, first=0.001, longest=0.01)


def node(name: str, uid: str = "u") -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}


def pool(name: str = "p", **spec: Any) -> dict[str, Any]:
    gpus = [{"type": "T4", "count": 2}]
    metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1}
    return {"metadata": metadata, "spec": {"gpus": gpus, **spec}}


class Running:
    """A controller at work on `api`, for the time of a `with`."""

    def __init__(self, api: FakeApi) -> None:
        self.api, self.metrics = api, PoolMetrics()
        self.controller = Controller(api, self.metrics, lambda: WALL_NS, QUICK)

    async def __aenter__(self) -> Running:
        self._task = asyncio.create_task(self.controller.run())
        return self

    async def __aexit__(self, *_exception: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                await self.api.wake()
                await asyncio.sleep(0.002)

    def labels(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.api.stored(NODE, name)["metadata"].get("labels", {})
        return found

    @property
    def reconciliations(self) -> float:
        return self.metrics.registry.get_sample_value("emugpu_pools_reconcile_seconds_count") or 0.0

    def failures(self, doing: str) -> float:
        return self.metrics.registry.get_sample_value("emugpu_pools_failures_total", {"doing": doing}) or 0.0


def run(story: Callable[[Running], Awaitable[None]], api: FakeApi | None = None) -> FakeApi:
    api = api or FakeApi()

    async def play() -> None:
        async with Running(api) as running:
            await story(running)

    asyncio.run(play())
    return api


def test_nodes_and_pools_that_come_and_go() -> None:
    async def story(at: Running) -> None:
        await at.until(lambda: at.controller.problem == "")
        at.api.put(POOL, pool())
        at.api.put(NODE, node("w1"))
        await at.until(lambda: at.labels("w1").get("emugpu.dev/pool") == "p")
        await at.until(lambda: at.api.stored(POOL, "p").get("status", {}).get("nodes") == 1)
        at.api.remove(NODE, "w1")
        await at.until(lambda: at.api.stored(POOL, "p")["status"]["nodes"] == 0)
        at.api.put(NODE, node("w1", "another"))
        await at.until(lambda: at.labels("w1").get("emugpu.dev/pool") == "p")
        at.api.remove(POOL, "p")
        await at.until(lambda: not at.labels("w1"))
        await at.until(lambda: at.metrics.registry.get_sample_value("emugpu_pool_nodes", {"pool": "p"}) is None)

    api = run(story)
    assert (
        "annotations" not in api.stored(NODE, "w1")["metadata"] or not api.stored(NODE, "w1")["metadata"]["annotations"]
    )
    (first, *_) = api.objects["events"].values()
    assert first["regarding"]["name"] == "p"


def test_a_cluster_at_rest_is_not_written_to() -> None:
    async def story(at: Running) -> None:
        await at.until(lambda: at.controller.problem == "" and at.api.stored(POOL, "p").get("status"))
        writes = len(at.api.log)
        at.api.put(NODE, at.api.stored(NODE, "w1"))  # the same again, as a kubelet's heartbeat is
        await at.until(lambda: True)
        await asyncio.sleep(0.05)
        await at.until(lambda: True)
        assert len(at.api.log) == writes

    api = FakeApi()
    api.put(POOL, pool())
    api.put(NODE, node("w1"))
    run(story, api)


def test_many_changes_are_answered_together() -> None:
    api = FakeApi()
    api.put(POOL, pool())

    async def story(at: Running) -> None:
        await at.until(lambda: at.controller.problem == "")
        for i in range(50):
            at.api.put(NODE, node(f"w{i}"))
        await at.until(lambda: at.api.stored(POOL, "p").get("status", {}).get("nodes") == 50)
        count = at.metrics.registry.get_sample_value("emugpu_pools_reconcile_seconds_count")
        assert count is not None and count < 10

    run(story, api)
    assert sum(write[:2] == ("apply", "nodes") for write in api.log) == 50


def test_failures_are_retried_reported_and_hold_up_no_other_node(capsys: Any) -> None:
    api = FakeApi()
    api.put(POOL, pool())
    for name in ("w1", "w2"):
        api.put(NODE, node(name))
    api.failures = {
        "list": [ApiAwayError("list: away")],
        "watch": [ClusterError("watch: forbidden"), NotThereError("watch: too old resource version")],
        "apply": [ApiAwayError("apply nodes w1: away")],
    }

    async def story(at: Running) -> None:
        await at.until(lambda: at.failures("PatchNode") and at.labels("w2").get("emugpu.dev/pool"))
        await at.until(lambda: at.labels("w1").get("emugpu.dev/pool") == "p" and at.controller.problem == "")
        assert at.failures("watch") == 2

    run(story, api)
    assert "pools: apply nodes w1: away" in capsys.readouterr().err


def test_a_node_that_goes_in_between_is_forgotten() -> None:
    api = FakeApi()
    api.put(POOL, pool())
    api.put(NODE, node("w1"))
    api.failures = {"apply": [NotThereError("uid mismatch")]}

    async def story(at: Running) -> None:
        await at.until(lambda: at.reconciliations)
        assert not at.failures("PatchNode") and at.controller.problem == ""
        assert not at.labels("w1")
        at.api.put(NODE, node("w1", "another"))
        await at.until(lambda: at.labels("w1").get("emugpu.dev/pool") == "p")

    run(story, api)


def test_an_event_that_fails_is_an_error_like_others() -> None:
    api = FakeApi()
    api.put(POOL, pool())
    api.failures = {"create": [ClusterError("create events: forbidden")]}

    async def story(at: Running) -> None:
        await at.until(lambda: at.failures("RecordEvent") == 1 and at.controller.problem == "")

    run(story, api)
