"""Keeps a Store like the API server's objects: list, then watch, for ever; what fails is tried again with growing pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from emulator_runtime.domain.errors import EmuGpuError
from operators.kube.api import Api, NotThereError, Resource
from operators.kube.store import Store

_LASTS_S = 10.0
"""A watch that has held for so long works, also where there was nothing to tell. Host seconds."""


@dataclass(frozen=True, slots=True)
class Pauses:
    """Seconds. `settle`: changes within it are answered at once; a failure waits `first`, then doubles up to `longest`."""

    settle: float = 0.2
    first: float = 0.5
    longest: float = 60.0

    def after(self, failures: int) -> float:
        return min(self.longest, self.first * 2.0 ** min(failures - 1, 30))


@dataclass(frozen=True, slots=True)
class Followed:
    """One kind of object, where it is kept, and which of them (`options` of list and watch: namespace, labels)."""

    resource: Resource
    store: Store[Any]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """As kubectl says it."""
        return self.resource.plural


async def follow(
    api: Api,
    followed: Followed,
    pauses: Pauses,
    changed: Callable[[], None],
    failed: Callable[[EmuGpuError], None],
    *,
    listed: Callable[[], None] = lambda: None,
) -> None:
    """Never ends by itself; it is cancelled. `changed` is called for every news, `failed` for every failure, `listed` for
    every list that came through.

    A list alone is no success: a watch that breaks at once would have everything listed twice a second.
    """
    failures, now_s = 0, asyncio.get_running_loop().time
    while True:
        works_from_s = inf
        try:
            version, documents = await api.list(followed.resource, **followed.options)
            if followed.store.replace(documents, version):
                changed()
            listed()
            works_from_s = now_s() + _LASTS_S
            async for kind, document in api.watch(followed.resource, version, **followed.options):
                works_from_s = now_s()
                if followed.store.update(kind, document):
                    changed()
            if now_s() >= works_from_s:
                failures = 0
                continue
        except NotThereError:
            pass  # The version is too old for a watch: list again. Where the kind itself is missing, the pause grows.
        except EmuGpuError as error:
            failed(error)
        failures = 1 if now_s() >= works_from_s else failures + 1
        await asyncio.sleep(pauses.after(failures))
