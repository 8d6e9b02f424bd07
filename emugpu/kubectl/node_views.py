"""Nodes with emulated GPUs: offers and requests (API server), and utilisation (the nodes' managers).

A manager's metrics come through the API server's pod proxy, so no port of the cluster must be reachable from here.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from emugpu.kubectl.cluster import listed, refusal
from emulator_runtime.domain.errors import EmuGpuError, InputError, ProtocolError
from emulator_runtime.node.inventory import Inventory
from operators.kube.api import NODE, POD, Api
from operators.objects.node import Node
from operators.objects.pod import MANAGER, Pod
from operators.scheduling.names import SYSTEM_NAMESPACE


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a device: a container of a pod; all empty if the manager doesn't know it."""

    namespace: str
    pod: str
    container: str
    used_bytes: int

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.pod}" if self.pod else "?"


@dataclass(frozen=True, slots=True)
class DeviceFigures:
    """One device as its manager reports it now. `utilisation`: busy share of the last second, 0 to 1."""

    uuid: str
    index: int
    gpu_type: str
    memory_bytes: int
    used_bytes: int
    utilisation: float
    healthy: bool
    holders: tuple[Holder, ...]


def device_figures(text: str) -> list[DeviceFigures]:
    """All devices of a manager's /metrics in the order of their indexes; the names are those of
    sharing_manager/telemetry/metrics.py. Raises ProtocolError for any other text."""
    values: dict[str, dict[str, float]] = {}
    labels: dict[str, Mapping[str, str]] = {}
    holders: dict[str, list[Holder]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                uuid = sample.labels.get("uuid", "")
                if sample.name.startswith("emugpu_device_"):
                    labels[uuid] = sample.labels
                    values.setdefault(uuid, {})[sample.name.removeprefix("emugpu_device_")] = sample.value
                elif sample.name == "emugpu_process_memory_used_bytes":
                    holders.setdefault(uuid, []).append(_holder(sample.labels, sample.value))
        found = [_figures(labels[uuid], values[uuid], holders.get(uuid, [])) for uuid in values]
    except (ValueError, KeyError) as error:
        raise ProtocolError(f"what it answers is not the metrics of a sharing manager ({error})") from error
    return sorted(found, key=lambda device: device.index)


def _holder(labels: Mapping[str, str], used_bytes: float) -> Holder:
    return Holder(labels["namespace"], labels["pod"], labels["container"], int(used_bytes))


def _figures(labels: Mapping[str, str], values: Mapping[str, float], holders: list[Holder]) -> DeviceFigures:
    return DeviceFigures(
        uuid=labels["uuid"],
        index=int(labels["gpu"]),
        gpu_type=labels["gpu_type"],
        memory_bytes=int(values["memory_total_bytes"]),
        used_bytes=int(values["memory_used_bytes"]),
        utilisation=values["utilisation_ratio"],
        healthy=values["healthy"] == 1,
        holders=tuple(sorted(holders, key=lambda holder: (holder.namespace, holder.pod, holder.container))),
    )


NO_MANAGER = "it has no pod with a manager"
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class DeviceView:
    """A device of its node's inventory; `now` None: its manager reports nothing. `mig_gpu`: index and UUID of the GPU on which a
    MIG instance is."""

    node: str
    index: int
    uuid: str
    gpu_type: str
    memory_bytes: int
    resource: str
    healthy: bool
    reason: str
    now: DeviceFigures | None = None
    mig_gpu: tuple[int, str] | None = None


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod that requests emulated GPUs. `job`: its EmuJob's name; `gpus` counts devices or shares of them."""

    namespace: str
    name: str
    node: str
    job: str
    gpus: int

    @property
    def holder(self) -> str:
        """Its name in a list of holders."""
        return f"{self.namespace}/{self.job or self.name}"


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node of a pool. `allocatable` and `allocated` count devices, or shares of shared devices.

    `problem`: why its manager reports nothing; empty: it does.
    """

    name: str
    pool: str
    ready: bool
    allocatable: int
    allocated: int
    devices: tuple[DeviceView, ...]
    pods: tuple[PodView, ...]
    problem: str = ""


async def nodes_with_gpus(api: Api, only: str = "") -> list[NodeView]:
    """All nodes of pools by name, or the node `only` (none if it has no pool).

    Raises ForbiddenError if nodes or pods can't be listed; a manager that doesn't answer is a `problem` of its node.
    """
    listing = asyncio.gather(listed(api, NODE), listed(api, POD, namespace="*"), return_exceptions=True)
    for result in await listing:  # of two refusals always the first is reported
        if isinstance(result, BaseException):
            raise result
    nodes, pods = (result for result in listing.result() if not isinstance(result, BaseException))
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
    figures = await _figures_by_node(api, [managers[name] for name in inventories if name in managers])
    resources = {resource.name for inventory in inventories.values() for resource in inventory.resources}
    asking: dict[str, list[PodView]] = {}
    for document in pods:
        pod = pod_view(document, resources)
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


def pod_view(document: Mapping[str, Any], resources: Iterable[str]) -> PodView | None:
    """The pod; None if it has ended or holds none of these resources."""
    pod = Pod.read(document)
    gpus = sum(pod.resources.get(name, 0) for name in resources)
    if pod.over or not gpus:
        return None
    return PodView(pod.key.namespace, pod.key.name, pod.node, pod.job, gpus)


def managers_of(pods: Iterable[Pod]) -> tuple[dict[str, Pod], str]:
    """The sharing managers by node, else why none can be distinguished from pods that only look like one.

    Anybody can create such a pod in a namespace of their own, so all managers must be of one namespace: the only one with such
    pods, or the chart's default namespace.
    """
    found = [pod for pod in pods if pod.might_be_manager]
    namespaces = sorted({pod.key.namespace for pod in found})
    if len(namespaces) > 1 and SYSTEM_NAMESPACE not in namespaces:
        named = " and ".join(namespaces[:3])
        return {}, f"pods of the namespaces {named} look like sharing managers; only one of them can be emugpu's"
    namespace = SYSTEM_NAMESPACE if SYSTEM_NAMESPACE in namespaces else "".join(namespaces)
    return {pod.node: pod for pod in found if pod.key.namespace == namespace}, ""


async def _figures_by_node(api: Api, managers: Iterable[Pod]) -> dict[str, list[DeviceFigures] | str]:
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


def _node(facts: Node, inventory: Inventory, pods: list[PodView], reported: list[DeviceFigures] | str) -> NodeView:
    figures = {} if isinstance(reported, str) else {device.uuid: device for device in reported}
    devices = [
        DeviceView(
            facts.name,
            entry.device.index,
            entry.device.uuid,
            entry.device.gpu_type,
            entry.device.memory_bytes,
            resource.name,
            entry.healthy,
            entry.reason,
            figures.get(entry.device.uuid),
            (entry.device.gpu_index, entry.device.gpu_uuid) if entry.device.mig is not None else None,
        )
        for resource in inventory.resources
        for entry in resource.devices
    ]
    return NodeView(
        name=facts.name,
        pool=inventory.pool or facts.pool,
        ready=facts.ready,
        allocatable=sum(facts.allocatable.get(resource.name, 0) for resource in inventory.resources),
        allocated=sum(pod.gpus for pod in pods),
        devices=tuple(sorted(devices, key=lambda device: device.index)),
        pods=tuple(sorted(pods, key=lambda pod: (pod.namespace, pod.name))),
        problem=reported if isinstance(reported, str) else "",
    )


def gpu_types(node: NodeView) -> str:
    """The types of the node's devices, the most frequent one first."""
    found = Counter(device.gpu_type for device in node.devices).most_common()
    return ", ".join(name if len(found) == 1 else f"{count}x{name}" for name, count in found)
