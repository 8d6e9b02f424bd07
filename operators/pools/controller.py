"""The controller of EmuGPUPools. All pools and nodes are reconciled together: which pool has a node depends on all pools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client import Gauge

from operators.controllers.actions import Plan, WriteStatus
from operators.controllers.loop import ControllerLoop, Reconciler
from operators.controllers.metrics import ControllerMetrics
from operators.controllers.writer import Author
from operators.kube.api import NODE, POOL, Api, Json, applied
from operators.kube.informer import Followed, Pauses
from operators.kube.store import Store
from operators.kube.timestamps import rfc3339
from operators.objects.node import FIELD_MANAGER, Node
from operators.objects.pool import Pool
from operators.pools.reconcile import Action, PatchNode, reconcile

AUTHOR = Author(FIELD_MANAGER, POOL, "EmuGPUPool", "pools")
_ALL = "all"
"""The only key of the queue."""
_NUMBERS = ("nodes", "devices", "allocatable", "unhealthy")


class PoolMetrics(ControllerMetrics):
    """Metrics of every controller, and the numbers of each pool's status."""

    def __init__(self) -> None:
        super().__init__("pools", "one reconciliation")
        self._pools = {
            name: Gauge(f"emugpu_pool_{name}", f"status.{name} of the pool", ["pool"], registry=self.registry)
            for name in _NUMBERS
        }

    def wrote(self, status: WriteStatus) -> None:
        """Export the numbers of a pool's new status."""
        for name, gauge in self._pools.items():
            gauge.labels(status.key.name).set(status.status[name])

    def forget_all_but(self, pools: Iterable[str]) -> None:
        """Remove the numbers of pools that don't exist any more."""
        kept = set(pools)
        for gauge in self._pools.values():
            for metric in list(gauge.collect()):
                for sample in metric.samples:
                    if sample.labels["pool"] not in kept:
                        gauge.remove(sample.labels["pool"])


class Controller:
    """`run` never ends by itself; it is cancelled. `wall_ns` gives the times written into objects."""

    def __init__(
        self, api: Api, metrics: PoolMetrics, wall_ns: Callable[[], int], pauses: Pauses | None = None
    ) -> None:
        self._metrics, self._wall_ns = metrics, wall_ns
        self._pools: Store[Pool] = Store(Pool.read)
        self._nodes: Store[Node] = Store(Node.read)
        self._loop: ControllerLoop[PatchNode] = ControllerLoop(api, metrics, wall_ns, pauses=pauses)

    @property
    def problem(self) -> str:
        """Why nodes may not have the devices of their pools; empty: they have."""
        return self._loop.problem

    async def run(self) -> None:
        followed = Followed(POOL, self._pools), Followed(NODE, self._nodes)
        await self._loop.run(
            Reconciler(
                author=AUTHOR,
                followed=followed,
                reconcile=self._reconcile,
                write=patch_node,
                wrote=self._wrote,
                changed=lambda: self._loop.add(_ALL),
            )
        )

    def _reconcile(self, _key: str) -> Sequence[Plan[Action]]:
        self._metrics.forget_all_but(pool.name for pool in self._pools.values())
        return reconcile(self._pools.values(), self._nodes.values(), rfc3339(self._wall_ns()))

    def _wrote(self, action: Action, document: Json | None) -> None:
        """Put the answer into the cache; the watch event that follows then changes nothing."""
        if isinstance(action, WriteStatus):
            self._metrics.wrote(action)
        if document is not None:
            (self._nodes if isinstance(action, PatchNode) else self._pools).update("MODIFIED", document)


async def patch_node(api: Api, action: PatchNode) -> Json:
    """The node after the write. Raises what Api raises."""
    metadata = {"labels": dict(action.labels), "annotations": dict(action.annotations)}
    document = applied(NODE, action.name, action.uid, metadata=metadata)
    return await api.apply(NODE, action.name, document, FIELD_MANAGER)
