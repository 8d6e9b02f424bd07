"""The nodes of all pools with what they emulate: the one place where schedulers, API and experiments count nodes and devices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from emulator_runtime.domain.stages import HostResource
from emulator_runtime.node.inventory import EXCLUSIVE, DeviceEntry, Inventory, ResourceEntry
from emulator_runtime.node.layout import GPU_RESOURCE
from operators.objects.node import Node
from operators.objects.pool import Pool, PoolSpec
from operators.pools.assign import assign


@dataclass(frozen=True, slots=True)
class EmulatedNode:
    """A node of a pool. `cpu_milli`, `memory_bytes`: the pool's emulated amounts, else the machine's own. `host_resources`: what
    its jobs share beside devices."""

    node: Node
    pool: str
    resources: tuple[ResourceEntry, ...]
    cpu_milli: int
    memory_bytes: int
    host_resources: tuple[HostResource, ...] = ()

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def entries(self) -> list[DeviceEntry]:
        """All devices in the order of their indexes, healthy or not."""
        return sorted((e for r in self.resources for e in r.devices), key=lambda entry: entry.device.index)

    @property
    def gpus(self) -> list[DeviceEntry]:
        """The devices that an EmuJob can use: those of the default resource, each once however often it is shared."""
        return [entry for r in self.resources if r.name == GPU_RESOURCE for entry in r.devices]

    @property
    def sharing(self) -> str:
        """How pods share these devices; they are one resource, so it is the same for all."""
        return next((r.sharing for r in self.resources if r.name == GPU_RESOURCE), EXCLUSIVE)

    @property
    def replicas(self) -> int:
        """How many pods may share one of these devices."""
        return next((r.replicas for r in self.resources if r.name == GPU_RESOURCE), 1)

    @property
    def shares(self) -> list[DeviceEntry]:
        """Such devices as often as pods can request them: one that four pods share is there four times."""
        return [e for r in self.resources if r.name == GPU_RESOURCE for e in r.devices for _ in range(r.replicas)]


def emulated_nodes(pools: Iterable[Pool], nodes: Sequence[Node]) -> tuple[EmulatedNode, ...]:
    """All nodes of all pools, by name. Pure."""
    assignment = assign(pools, nodes)
    by_name = {node.name: node for node in nodes}
    found = []
    for name, claim in sorted(assignment.claims.items()):
        inventory = claim.inventory or Inventory(name, ())
        amounts = _amounts(assignment.specs.get(claim.pool), by_name[name])
        found.append(EmulatedNode(by_name[name], claim.pool, inventory.resources, *amounts, inventory.host_resources))
    return tuple(found)


def _amounts(spec: PoolSpec | None, node: Node) -> tuple[int, int]:
    cpu_milli = node.cpu_milli if spec is None or spec.cpu_milli is None else spec.cpu_milli
    memory_bytes = node.memory_bytes if spec is None or spec.memory_bytes is None else spec.memory_bytes
    return cpu_milli, memory_bytes
