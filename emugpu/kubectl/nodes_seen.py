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
from operators.kube.api import NODE, POD, Api
from operators.objects.node import Node
from operators.objects.pod import MANAGER, Pod
from operators.scheduling.names import SYSTEM_NAMESPACE

NO_MANAGER = "it has no pod with a manager"
_AT_ONCE = 16


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


async def nodes_with_gpus(api: Api, only: str = "") -> list[NodeSeen]:
    """All nodes of pools by name, or the one that is called `only` (none where it has no pool).

    Raises ForbiddenError where nodes or pods can't be listed; a manager that doesn't answer is a `problem` of its node.
    """
    nodes, pods = await asyncio.gather(listed(api, NODE), listed(api, POD, namespace="*"))
    facts = sorted((f for f in map(Node.read, nodes) if only in ("", f.name)), key=lambda f: f.name)
    inventories, unread = {}, {}
    for each in facts:
        try:
            found = each.inventory()
        except InputError as error:
            unread[each.name], found = str(error), Inventory(each.name, ())
        if found is not None:
            inventories[each.name] = found
    managers, problem = managers_of(map(Pod.read, pods))
    figures = await _figures(api, [managers[name] for name in inventories if name in managers])
    resources = {resource.name for inventory in inventories.values() for resource in inventory.resources}
    asking: dict[str, list[PodSeen]] = {}
    for document in pods:
        pod = pod_seen(document, resources)
        if pod is not None and pod.node:
            asking.setdefault(pod.node, []).append(pod)
    return [
        _node(
            f,
            inventories[f.name],
            asking.get(f.name, []),
            unread.get(f.name) or figures.get(f.name, problem or NO_MANAGER),
        )
        for f in facts
        if f.name in inventories
    ]


def pod_seen(document: Mapping[str, Any], resources: Iterable[str]) -> PodSeen | None:
    """The pod; None if it has ended or holds none of these resources."""
    pod = Pod.read(document)
    gpus = sum(pod.resources.get(name, 0) for name in resources)
    if pod.over or not gpus:
        return None
    return PodSeen(pod.key.namespace, pod.key.name, pod.node, pod.job, gpus)


def managers_of(pods: Iterable[Pod]) -> tuple[dict[str, Pod], str]:
    """The sharing managers by node, else why none can be told from pods that only look like one.

    Anybody can make such a pod in a namespace of their own, so all managers must be of one namespace: the only one that has such
    pods, or the chart's usual one.
    """
    found = [pod for pod in pods if pod.might_be_manager]
    namespaces = sorted({pod.key.namespace for pod in found})
    if len(namespaces) > 1 and SYSTEM_NAMESPACE not in namespaces:
        named = " and ".join(namespaces[:3])
        return {}, f"pods of the namespaces {named} look like sharing managers; only one of them can be emugpu's"
    namespace = SYSTEM_NAMESPACE if SYSTEM_NAMESPACE in namespaces else "".join(namespaces)
    return {pod.node: pod for pod in found if pod.key.namespace == namespace}, ""


async def _figures(api: Api, managers: Iterable[Pod]) -> dict[str, list[DeviceFigures] | str]:
    """By node: the figures of its manager, or why there are none."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def ask(manager: Pod) -> tuple[str, list[DeviceFigures] | str]:
        place = f"{manager.key.name}:{manager.ports[MANAGER]}"
        path = f"/api/v1/namespaces/{manager.key.namespace}/pods/{place}/proxy/metrics"
        async with turns:
            try:
                return manager.node, device_figures(await api.text(path))
            except EmuGpuError as error:
                return manager.node, refusal(error)

    return dict(await asyncio.gather(*map(ask, managers)))


def _node(facts: Node, inventory: Inventory, pods: list[PodSeen], told: list[DeviceFigures] | str) -> NodeSeen:
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
