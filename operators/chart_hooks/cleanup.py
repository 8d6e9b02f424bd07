"""`python -m operators.chart_hooks.cleanup` removes what the chart's programs wrote; run by the chart's hook before an uninstall.

The order matters. Experiments end first: without devices their runs would only fail. Pools go next, so that the controller,
which may still run, gives no node new devices. Then each node's inventory says `cleanup`: its manager ends all grants, empties
the node directory and becomes unready, and the controller leaves the node alone. Labels and annotations go last. Nodes whose
daemons don't answer in time are named.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from emulator_runtime.domain.errors import InputError
from emulator_runtime.node.inventory import Inventory
from emulator_runtime.node.layout import INVENTORY_ANNOTATION
from emulator_runtime.node.settings import EnvSettings, run_daemon, setting
from operators.chart_hooks.experiments import stop_experiments
from operators.kube.api import NODE, POD, POOL, Api, Json, NotThereError, applied, selector_of
from operators.kube.client import KubeApi
from operators.objects.node import FIELD_MANAGER, Node

_POLL_S = 0.5


@dataclass(frozen=True)
class Settings(EnvSettings):
    """Each field is read from the variable EMUGPU_CLEANUP_<FIELD>."""

    PREFIX: ClassVar[str] = "EMUGPU_CLEANUP_"

    namespace: str = setting("namespace of the node pods and of the experiments' runners", "emugpu")
    node_pods: str = setting("label of the node pods", "app.kubernetes.io/component=node")
    timeout_s: int = setting("how long to wait for the node pods (seconds, 0 to 600)", 30, most=600)


@dataclass(frozen=True, slots=True)
class NodePods:
    """How to find the daemons' pods, and how long they may take (host seconds)."""

    namespace: str
    labels: Mapping[str, str]
    patience_s: float


async def cleanup(api: Api, pods: NodePods, say: Callable[[str], None]) -> list[str]:
    """Returns the nodes whose daemons didn't finish in time. Raises what Api raises."""
    for pool in await _list_pools(api):
        await api.delete(POOL, pool)
        say(f"pool {pool} deleted")
    nodes = [node for node in map(Node.read, (await api.list(NODE))[1]) if node.owned]
    for node in nodes:
        text = Inventory(node.name, (), cleanup=True).to_json()
        await _apply(api, node, {INVENTORY_ANNOTATION: text})
    late = await _wait_for_daemons(api, {node.name for node in nodes}, pods) if nodes else []
    for node in nodes:
        await _apply(api, node, {})
        say(f"node {node.name}: labels and annotations removed")
    for name in late:
        say(f"node {name}: its daemon did not finish in {pods.patience_s:g} s; the node directory may be left there")
    return late


async def _list_pools(api: Api) -> list[str]:
    try:
        return [str(document["metadata"]["name"]) for document in (await api.list(POOL))[1]]
    except NotThereError:  # the CRD is gone, and all pools with it
        return []


async def _apply(api: Api, node: Node, annotations: Mapping[str, str]) -> None:
    metadata = {"annotations": dict(annotations)}
    with contextlib.suppress(NotThereError):  # the node has left the cluster, and its labels with it
        await api.apply(NODE, node.name, applied(NODE, node.name, node.uid, metadata=metadata), FIELD_MANAGER)


async def _wait_for_daemons(api: Api, nodes: set[str], pods: NodePods) -> list[str]:
    """The nodes of `nodes` with a daemon pod that is still ready when the time is over."""
    deadline = asyncio.get_running_loop().time() + pods.patience_s
    while True:
        _, documents = await api.list(POD, namespace=pods.namespace, labels=selector_of(pods.labels))
        busy = sorted(nodes & {_node_of(document) for document in documents if _is_ready(document)})
        if not busy or asyncio.get_running_loop().time() >= deadline:
            return busy
        await asyncio.sleep(_POLL_S)


def _node_of(pod: Json) -> str:
    return str(pod.get("spec", {}).get("nodeName", ""))


def _is_ready(pod: Json) -> bool:
    conditions: list[dict[str, Any]] = pod.get("status", {}).get("conditions") or []
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def main(argv: list[str]) -> int:
    purpose = "Removes experiments' runners and namespaces, pools, and the nodes' labels and annotations."
    return run_daemon(
        argv, "operators.chart_hooks.cleanup", purpose, Settings, lambda settings: asyncio.run(_run(settings))
    )


async def _run(settings: Settings) -> None:
    name, _, value = settings.node_pods.partition("=")
    if not name or not value:
        raise InputError(settings.variable("node_pods"), f"must be label=value, got {settings.node_pods!r}")
    api = KubeApi()

    def say(text: str) -> None:
        print(text, flush=True)

    try:
        await stop_experiments(api, settings.namespace, say)
        await cleanup(api, NodePods(settings.namespace, {name: value}, settings.timeout_s), say)
    finally:
        await api.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
