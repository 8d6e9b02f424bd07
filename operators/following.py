"""Keeps a Store like the API server's objects: list, then watch, for ever; what fails is tried again with growing pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from emulator_runtime.domain.errors import EmuGpuError
from operators.kube import Api, NotThereError
from operators.store import Store


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

    resource: type[Any]
    store: Store[Any]
    options: Mapping[str, Any] = field(default_factory=dict)


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
    every list that came through."""
    failures = 0
    while True:
        try:
            version, documents = await api.list(followed.resource, **followed.options)
            if followed.store.replace(documents):
                changed()
            listed()
            failures = 0
            async for kind, document in api.watch(followed.resource, version, **followed.options):
                if followed.store.update(kind, document):
                    changed()
        except NotThereError:
            # The version is too old for a watch: list again. Where the kind itself is missing, the pause grows.
            failures += 1
        except EmuGpuError as error:
            failures += 1
            failed(error)
        if failures:
            await asyncio.sleep(pauses.after(failures))
