"""Keeps a Store up to date: list, then watch, for ever; failures are retried with exponential backoff."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from emulator_runtime.domain.errors import EmuGpuError
from emulator_runtime.retrying import growing_pause
from operators.kube.api import Api, NotThereError, Resource
from operators.kube.store import Store

_LASTS_S = 10.0
"""A watch that lasted this long counts as working, even without an event. Host seconds."""


@dataclass(frozen=True, slots=True)
class Pauses:
    """Seconds. Changes within `settle` are reconciled together; retries wait `first`, doubled each time up to `longest`."""

    settle: float = 0.2
    first: float = 0.5
    longest: float = 60.0

    def after(self, failures: int) -> float:
        return growing_pause(failures, self.first, self.longest)


@dataclass(frozen=True, slots=True)
class Followed:
    """One kind of object, its cache, and which objects (`options` of list and watch: namespace, labels, fields)."""

    resource: Resource
    store: Store[Any]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The plural name, as kubectl prints it."""
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
    """Runs until it is cancelled. Calls `changed` after every change, `failed` after every failure, `listed` after every list.

    A successful list alone does not end the backoff: else a watch that always breaks would list everything twice a second.
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
            pass  # 410 Gone: list again. Where the kind itself does not exist, the backoff grows.
        except EmuGpuError as error:
            failed(error)
        failures = 1 if now_s() >= works_from_s else failures + 1
        await asyncio.sleep(pauses.after(failures))
