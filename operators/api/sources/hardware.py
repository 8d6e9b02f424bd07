"""Nodes and devices of a cluster as its pools assign them, and the jobs that hold them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from emulator_runtime.node.inventory import DeviceEntry
from operators.api.model.natural_order import natural
from operators.api.model.snapshot import Device, Job, Node
from operators.objects.names import HOLDING
from operators.objects.node import Node as ClusterNode
from operators.objects.pool import Pool
from operators.pools.emulated_nodes import emulated_nodes


@dataclass(frozen=True, slots=True)
class Hardware:
    """All nodes and devices, without holders. `places`: NODE/INDEX by UUID."""

    nodes: tuple[Node, ...] = ()
    devices: tuple[Device, ...] = ()
    places: Mapping[str, str] = field(default_factory=dict)


def hardware_of(pools: Iterable[Pool], nodes: Sequence[ClusterNode]) -> Hardware:
    """All nodes of all pools, by name."""
    found, devices = [], []
    for each in sorted(emulated_nodes(pools, nodes), key=lambda each: natural(each.name)):
        own = [_device(each.name, entry) for entry in each.entries]
        devices += own
        found.append(
            Node(
                name=each.name,
                pool=each.pool,
                ready=each.node.ready,
                gpu_types=tuple(dict.fromkeys(device.gpu_type for device in own)),
                devices=len(own),
                unhealthy=sum(not device.healthy for device in own),
                cpu_milli=each.cpu_milli,
                memory_bytes=each.memory_bytes,
            )
        )
    return Hardware(tuple(found), tuple(devices), {device.uuid: device.id for device in devices})


def with_holders(hardware: Hardware, jobs: Iterable[Job]) -> tuple[tuple[Node, ...], tuple[Device, ...]]:
    """Nodes and devices with the jobs that hold them now.

    If the devices of a job aren't reported (no event log), its nodes still count them as held.
    """
    holders: dict[str, list[str]] = {}
    unreported: dict[str, int] = {}
    for job in jobs:
        if job.phase not in HOLDING:
            continue
        for place in job.devices:
            holders.setdefault(place, []).append(job.uid)
        if not job.devices and job.nodes and job.gpus:
            for node in job.nodes:
                unreported[node] = unreported.get(node, 0) + job.gpus // len(job.nodes)
    devices = tuple(
        replace(device, holders=tuple(holders[device.id]), held=True) if device.id in holders else device
        for device in hardware.devices
    )
    held: dict[str, int] = {}
    for device in devices:
        held[device.node] = held.get(device.node, 0) + device.held
    nodes = tuple(
        replace(node, held=min(node.devices, held.get(node.name, 0) + unreported.get(node.name, 0)))
        for node in hardware.nodes
    )
    return nodes, devices


def _device(node: str, entry: DeviceEntry) -> Device:
    device = entry.device
    return Device(
        id=f"{node}/{device.index}",
        node=node,
        index=device.index,
        uuid=device.uuid,
        gpu_type=device.gpu_type,
        memory_bytes=device.memory_bytes,
        healthy=entry.healthy,
        reason=entry.reason,
    )
