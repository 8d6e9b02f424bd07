"""A store that is kept like the API server's objects, whatever becomes of lists and watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from operators.kube import informer
from operators.kube.api import NODE, ApiAwayError, NotThereError, Resource
from operators.kube.informer import Followed, Pauses, follow
from operators.kube.store import Store
from tests.support.fake_api import FakeApi


def node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


class Watched(FakeApi):
    """Its watches do what they are told to, one after the other: tell a node (a name), hold on (seconds), break, end."""

    def __init__(self, *watches: list[str | float | Exception]) -> None:
        super().__init__()
        self._watches = list(watches)
        self.lists = 0

    async def list(self, resource: Resource, **options: Any) -> Any:
        self.lists += 1
        return await super().list(resource, **options)

    async def watch(self, resource: Resource, version: str, **options: Any) -> AsyncIterator[tuple[str, Any]]:
        for step in self._watches.pop(0) if self._watches else [3600.0]:
            if isinstance(step, Exception):
                raise step
            if isinstance(step, float):
                await asyncio.sleep(step)
            else:
                self.put(resource, node(step))
                yield "ADDED", self.stored(resource, step)


class Paused(Pauses):
    """Pauses that take no time and are noted."""

    noted: list[int]

    def after(self, failures: int) -> float:
        self.noted.append(failures)
        return 0.0


def play(api: Watched, lists: int) -> tuple[list[int], list[str], Store[str]]:
    """Until so many lists were asked for: the numbers of failures that were waited for, what was said, what is known."""
    pauses, said = Paused(), list[str]()
    object.__setattr__(pauses, "noted", [])
    store: Store[str] = Store(lambda document: str(document["metadata"]["name"]))

    async def story() -> None:
        following = asyncio.create_task(
            follow(api, Followed(NODE, store), pauses, lambda: None, lambda error: said.append(str(error)))
        )
        async with asyncio.timeout(30):
            while api.lists < lists:
                await asyncio.sleep(0.001)
        following.cancel()
        await asyncio.wait([following])

    asyncio.run(story())
    return pauses.noted, said, store


def test_a_watch_that_breaks_at_once_is_asked_for_ever_less_often() -> None:
    away = ApiAwayError("watch nodes: away")
    noted, said, _ = play(Watched([away], [away], [away]), 4)
    assert noted == [1, 2, 3]
    assert said == ["watch nodes: away"] * 3


def test_so_is_one_that_ends_at_once() -> None:
    assert play(Watched([], [], []), 4)[0] == [1, 2, 3]


def test_one_that_told_something_worked() -> None:
    away = ApiAwayError("away")
    noted, _, store = play(Watched([away], [away], ["a", away], [away]), 5)
    assert noted == [1, 2, 1, 2]
    assert store.values() == ["a"]


def test_one_that_held_for_a_while_worked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer, "_LASTS_S", 0.02)
    away = ApiAwayError("away")
    assert play(Watched([away], [away], [0.05, away], [away]), 5)[0] == [1, 2, 1, 2]


def test_after_one_that_ended_in_time_everything_is_listed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer, "_LASTS_S", 0.02)
    assert play(Watched([0.05], ["a"], ["b", 0.01]), 4)[0] == []


def test_a_version_that_is_too_old_is_nobodys_failure_and_a_list_that_fails_is() -> None:
    api = Watched(["a", NotThereError("too old")])
    api.failures["list"] = [ApiAwayError("list nodes: away"), ApiAwayError("list nodes: away")]
    noted, said, _ = play(api, 4)
    assert noted == [1, 2, 1]
    assert said == ["list nodes: away"] * 2
