"""The controller's life: list, watch, settle, reconcile, write; whatever fails is tried again with growing pauses.

Level-triggered: a change only says "look again", and what is done depends on what is there, not on what happened. So lost
or repeated events, restarts and a second controller for a moment do no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from emulator_runtime.domain.errors import EmuGpuError
from operators.kube.api import NODE, POOL, Api, NotThereError
from operators.kube.informer import Followed, Pauses, follow
from operators.kube.store import Store
from operators.kube.timestamps import rfc3339
from operators.objects.node import Node
from operators.objects.pool import Pool
from operators.pools.actions import PatchNode, PatchStatus
from operators.pools.metrics import PoolMetrics
from operators.pools.reconcile import reconcile
from operators.pools.writer import write


class Controller:
    """`run` never ends by itself; it is cancelled. `wall_ns` gives the times written into objects."""

    def __init__(
        self, api: Api, metrics: PoolMetrics, wall_ns: Callable[[], int], pauses: Pauses | None = None
    ) -> None:
        self._api, self._metrics, self._wall_ns = api, metrics, wall_ns
        self._pauses = pauses or Pauses()
        self._pools: Store[Pool] = Store(Pool.read)
        self._nodes: Store[Node] = Store(Node.read)
        self._changed = asyncio.Event()
        self._problem = "nothing was listed yet"

    @property
    def problem(self) -> str:
        """Why the cluster may not be as the pools say; empty where the last reconciliation came through."""
        return self._problem

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for followed in (Followed(POOL, self._pools), Followed(NODE, self._nodes)):
                failed = self._metrics.failed_watch
                group.create_task(follow(self._api, followed, self._pauses, self._changed.set, failed))
            group.create_task(self._work())

    async def _work(self) -> None:
        failures = 0
        while True:
            await self._changed.wait()
            await asyncio.sleep(self._pauses.settle)
            self._changed.clear()
            if not (self._pools.synced and self._nodes.synced):
                continue
            with self._metrics.reconciles.time():
                errors = await self._reconcile()
            self._problem = str(errors[0]) if errors else ""
            failures = failures + 1 if errors else 0
            if failures:
                await asyncio.sleep(self._pauses.after(failures))
                self._changed.set()

    async def _reconcile(self) -> list[EmuGpuError]:
        """Do all that is to be done; one node's failure doesn't hold up the others."""
        errors: list[EmuGpuError] = []
        self._metrics.forget_all_but(pool.name for pool in self._pools.values())
        for action in reconcile(self._pools.values(), self._nodes.values(), rfc3339(self._wall_ns())):
            store: Store[Any] = self._nodes if isinstance(action, PatchNode) else self._pools
            try:
                document = await write(self._api, action, self._wall_ns())
            except NotThereError:
                # Deleted in the meantime, or another one by now: the watch tells soon.
                if isinstance(action, (PatchNode, PatchStatus)):
                    store.forget(action.name)
                continue
            except EmuGpuError as error:
                self._metrics.failed(type(action).__name__, error)
                errors.append(error)
                continue
            self._metrics.wrote(action)
            if document is not None:
                store.update("MODIFIED", document)
        return errors
