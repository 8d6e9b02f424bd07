"""Nodes with emulated GPUs: what they offer and who asked for it (API server), and how busy they are (their managers).

A manager's figures come through the API server's pod proxy, so no port of the cluster need be reachable from here.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from emugpu.kubectl.cluster import listed, refusal
from emugpu.kubectl.samples import DeviceFigures, device_figures
from emulator_runtime.domain.errors import EmuGpuError, InputError
from emulator_runtime.node.inventory import Inventory
from operators.kube.api import NODE, POD, Api, Json
from operators.kube.documents import object_at, objects_in, text_at, texts_of
from operators.objects.names import JOB_LABEL
from operators.pools.objects import NodeFacts, node_facts

MANAGER = "manager"
"""The manager's container, and the name of its port, in pods of the component `node` (charts/emugpu/templates/node)."""
NO_MANAGER = "it has no pod with a manager"
_AT_ONCE = 16
_OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class DeviceSeen:
    """A device as its node's inventory has it; `now` None: its manager doesn't tell."""

    node: str
    index: int
    uuid: str
    gpu_type: str
    memory_bytes: int
    resource: str
    healthy: bool
    reason: str
    now: DeviceFigures | None = None


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A pod that asked for emulated GPUs, or uses some. `job`: its EmuJob's name; `gpus` counts devices or shares of them."""

    namespace: str
    name: str
    node: str
    job: str
    gpus: int

    @property
    def holder(self) -> str:
        """What it is called in a list of holders."""
        return f"{self.namespace}/{self.job or self.name}"


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node of a pool. `allocatable` and `allocated` count devices, or shares of them where they are shared.

    `problem`: why its manager tells nothing; empty: it does.
    """

    name: str
    pool: str
    ready: bool
    allocatable: int
    allocated: int
    devices: tuple[DeviceSeen, ...]
    pods: tuple[PodSeen, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ManagerPod:
    """Where a node's manager answers."""

    node: str
    namespace: str
    name: str
    port: int

    @property
    def metrics_path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}:{self.port}/proxy/metrics"


async def nodes_with_gpus(api: Api, only: str = "") -> list[NodeSeen]:
    """All nodes of pools by name, or the one that is called `only` (none where it has no pool).

    Raises ForbiddenError where nodes or pods can't be listed; a manager that doesn't answer is a `problem` of its node.
    """
    nodes, pods = await asyncio.gather(listed(api, NODE), listed(api, POD, namespace="*"))
    facts = sorted((f for f in map(node_facts, nodes) if only in ("", f.name)), key=lambda f: f.name)
    inventories, unread = {}, {}
    for each in facts:
        try:
            found = inventory_of(each)
        except InputError as error:
            unread[each.name], found = str(error), Inventory(each.name, ())
        if found is not None:
            inventories[each.name] = found
    managers = {pod.node: pod for pod in map(_manager, pods) if pod is not None}
    figures = await _figures(api, [managers[name] for name in inventories if name in managers])
    resources = {resource.name for inventory in inventories.values() for resource in inventory.resources}
    asking: dict[str, list[PodSeen]] = {}
    for document in pods:
        pod = pod_seen(document, resources)
        if pod is not None and pod.node:
            asking.setdefault(pod.node, []).append(pod)
    return [
        _node(f, inventories[f.name], asking.get(f.name, []), unread.get(f.name) or figures.get(f.name, NO_MANAGER))
        for f in facts
        if f.name in inventories
    ]


def pod_seen(document: Mapping[str, Any], resources: Iterable[str]) -> PodSeen | None:
    """The pod; None where it has ended or asks for none of these resources."""
    metadata, spec = object_at(document, "metadata"), object_at(document, "spec")
    if text_at(object_at(document, "status"), "phase") in _OVER:
        return None
    limits = [object_at(container, "resources", "limits") for container in objects_in(spec, "containers")]
    amounts = [str(limit.get(name, "0")) for limit in limits for name in resources]
    gpus = sum(int(amount) for amount in amounts if amount.isdecimal())
    names = text_at(metadata, "namespace"), text_at(metadata, "name"), text_at(spec, "nodeName")
    return PodSeen(*names, texts_of(metadata, "labels").get(JOB_LABEL, ""), gpus) if gpus else None


def inventory_of(facts: NodeFacts) -> Inventory | None:
    """What the pool gave the node; None for nothing. Raises InputError for what this version can't read."""
    text = facts.inventory_text
    return None if text is None else Inventory.from_json(text, f"inventory of node {facts.name}")


def _manager(document: Json) -> ManagerPod | None:
    labels = texts_of(object_at(document, "metadata"), "labels")
    if labels.get("app.kubernetes.io/component") != "node" or labels.get("app.kubernetes.io/part-of") != "emugpu":
        return None
    metadata, spec = object_at(document, "metadata"), object_at(document, "spec")
    containers = [c for c in objects_in(spec, "containers") if text_at(c, "name") == MANAGER]
    ports = [port for c in containers for port in objects_in(c, "ports") if text_at(port, "name") == MANAGER]
    if not ports or type(ports[0].get("containerPort")) is not int:
        return None
    return ManagerPod(
        text_at(spec, "nodeName"), text_at(metadata, "namespace"), text_at(metadata, "name"), ports[0]["containerPort"]
    )


async def _figures(api: Api, managers: Iterable[ManagerPod]) -> dict[str, list[DeviceFigures] | str]:
    """By node: what its manager tells, or why it doesn't."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def ask(manager: ManagerPod) -> tuple[str, list[DeviceFigures] | str]:
        async with turns:
            try:
                return manager.node, device_figures(await api.text(manager.metrics_path))
            except EmuGpuError as error:
                return manager.node, refusal(error)

    return dict(await asyncio.gather(*map(ask, managers)))


def _node(facts: NodeFacts, inventory: Inventory, pods: list[PodSeen], told: list[DeviceFigures] | str) -> NodeSeen:
    figures = {} if isinstance(told, str) else {device.uuid: device for device in told}
    devices = [
        DeviceSeen(
            facts.name,
            entry.device.index,
            entry.device.uuid,
            entry.device.gpu_type,
            entry.device.memory_bytes,
            resource.name,
            entry.healthy,
            entry.reason,
            figures.get(entry.device.uuid),
        )
        for resource in inventory.resources
        for entry in resource.devices
    ]
    return NodeSeen(
        name=facts.name,
        pool=inventory.pool or facts.pool,
        ready=facts.ready,
        allocatable=sum(facts.allocatable.get(resource.name, 0) for resource in inventory.resources),
        allocated=sum(pod.gpus for pod in pods),
        devices=tuple(sorted(devices, key=lambda device: device.index)),
        pods=tuple(sorted(pods, key=lambda pod: (pod.namespace, pod.name))),
        problem=told if isinstance(told, str) else "",
    )


def gpu_types(node: NodeSeen) -> str:
    """The types of the node's devices, most of one first."""
    found = Counter(device.gpu_type for device in node.devices).most_common()
    return ", ".join(name if len(found) == 1 else f"{count}x{name}" for name, count in found)
