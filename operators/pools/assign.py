"""Which node gets which devices, from all pools and all Nodes at once, in any order.

If two pools match one node, the older one has it, so that a new pool never takes devices away from running jobs. A pool whose
specification becomes invalid (a typing error in an edit) keeps the devices that it gave its nodes while it was valid.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.mig import instances
from emulator_runtime.node.inventory import DeviceEntry, Inventory, ResourceEntry, mig_resource
from emulator_runtime.node.sharing_file import apply_sharing
from operators.objects.node import Node
from operators.objects.pool import Pool, PoolSpec


@dataclass(frozen=True, slots=True)
class Claim:
    """A node's pool and its devices; `kept`: the pool is invalid now, so the node stays as it is (None: unreadable)."""

    pool: str
    inventory: Inventory | None
    kept: bool = False
    nvidia_labels: bool = False


@dataclass(frozen=True, slots=True)
class Assignment:
    """`claims` by node; `lost` by pool: matching nodes that an older pool has; `errors` and `specs` by pool."""

    claims: Mapping[str, Claim]
    lost: Mapping[str, Mapping[str, str]]
    errors: Mapping[str, InputError]
    specs: Mapping[str, PoolSpec]


def assign(pools: Iterable[Pool], nodes: Sequence[Node]) -> Assignment:
    """Pure: equal sets of pools and nodes give equal assignments."""
    ranked = sorted((pool for pool in pools if not pool.deleting), key=lambda pool: (pool.created, pool.name))
    specs, errors = _parsed(ranked)
    claims: dict[str, Claim] = {}
    lost: defaultdict[str, dict[str, str]] = defaultdict(dict)
    won: list[tuple[Node, str]] = []
    for node in sorted(nodes, key=lambda node: node.name):
        wanting = [pool.name for pool in ranked if _wants(specs.get(pool.name), pool.name, node)]
        if wanting:
            won.append((node, wanting[0]))
        for loser in wanting[1:]:
            lost[loser][node.name] = wanting[0]
    for node, pool in won:
        if pool not in errors:
            try:
                inventory = inventory_of(pool, specs[pool], node.name)
                claims[node.name] = Claim(pool, inventory, nvidia_labels=specs[pool].nvidia_labels)
            except InputError as error:
                errors[pool] = error
    for node, pool in won:  # an error that only shows on some nodes leaves all nodes of the pool as they are
        if pool in errors:
            claims.pop(node.name, None)
            if node.pool == pool:
                claims[node.name] = _kept(pool, node)
    return Assignment(claims, dict(lost), errors, specs)


def inventory_of(pool: str, spec: PoolSpec, node: str) -> Inventory:
    """The devices that `spec` gives `node`, GPUs indexed in the order of the groups. Raises InputError for the sections sharing
    and mig."""
    resources: dict[str, list[DeviceEntry]] = {}
    place = f"EmuGPUPool {pool}: spec"
    entries = list(_cut(spec, _entries(spec, node), f"{place}.mig"))
    for resource, entry in entries:
        resources.setdefault(resource, []).append(entry)
    inventory = Inventory(
        node=node,
        resources=tuple(ResourceEntry(name, tuple(devices)) for name, devices in resources.items()),
        pool=pool,
        compat=spec.compat,
        cuda=spec.cuda,
        host_resources=spec.host_resources([entry.device for _, entry in entries]),
    )
    return apply_sharing(inventory, spec.sharing, f"{place}.sharing") if spec.sharing else inventory


def _entries(spec: PoolSpec, node: str) -> Iterator[tuple[str, DeviceEntry]]:
    index = first_link_group = 0
    for group in spec.groups:
        for position in range(group.count):
            reason = spec.unhealthy.get((node, index))
            yield (
                group.resource,
                DeviceEntry(
                    device=Device(node, index, group.gpu.gpu_type, group.memory_bytes),
                    numa_node=position * group.numa_nodes // group.count,
                    link_group=first_link_group + position // group.link_group_size,
                    healthy=reason is None,
                    reason=reason or "",
                ),
            )
            index += 1
        first_link_group += -(-group.count // group.link_group_size)


def _cut(spec: PoolSpec, entries: Iterable[tuple[str, DeviceEntry]], place: str) -> Iterator[tuple[str, DeviceEntry]]:
    """The same, with MIG instances in the place of GPUs that are cut. Instances have no fast links to each other."""
    gpus = sum(group.count for group in spec.groups)
    for resource, entry in entries:
        profiles = spec.mig.profiles_of(entry.device.index) if spec.mig is not None else ()
        if spec.mig is None or not profiles:
            yield resource, entry
            continue
        for profile, device in zip(profiles, instances(entry.device, gpus, profiles, place), strict=True):
            reason = entry.reason or spec.unhealthy.get((device.node, device.index), "")
            cut = replace(entry, device=device, link_group=gpus + device.index, healthy=not reason, reason=reason)
            yield mig_resource(resource, profile) if spec.mig.strategy == "mixed" else resource, cut


def _parsed(pools: Iterable[Pool]) -> tuple[dict[str, PoolSpec], dict[str, InputError]]:
    specs: dict[str, PoolSpec] = {}
    errors: dict[str, InputError] = {}
    for pool in pools:
        try:
            specs[pool.name] = pool.spec
        except InputError as error:
            errors[pool.name] = error
    return specs, errors


def _wants(spec: PoolSpec | None, pool: str, node: Node) -> bool:
    if spec is None:
        return node.pool == pool
    if spec.selector.is_empty:
        return not node.control_plane
    return spec.selector.matches(node.labels)


def _kept(pool: str, node: Node) -> Claim:
    try:
        inventory = Inventory.from_json(node.inventory_text or "", f"Node {node.name}")
    except InputError:
        inventory = None
    return Claim(pool, inventory, kept=True)
