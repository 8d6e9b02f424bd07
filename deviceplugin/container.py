"""What a container gets for its devices, decided without touching anything: ids checked, device files, variables, mounts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from emulator_runtime.domain.errors import InputError
from emulator_runtime.node import layout as names
from emulator_runtime.node.inventory import Compat, DeviceEntry, ResourceEntry, split_device_id
from emulator_runtime.node.layout import NodeLayout


@dataclass(frozen=True, slots=True)
class Offer:
    """One resource with what its node adds to it."""

    node: str
    resource: ResourceEntry
    compat: Compat = field(default_factory=Compat)


@dataclass(frozen=True, slots=True)
class Mount:
    """A path of the host, seen read-only in the container."""

    host_path: str
    container_path: str


@dataclass(frozen=True, slots=True)
class ContainerReply:
    """The part of an Allocate reply that concerns one container."""

    envs: Mapping[str, str]
    mounts: tuple[Mount, ...] = ()
    cdi_devices: tuple[str, ...] = ()


def checked_ids(resource: ResourceEntry, requested: Sequence[str]) -> tuple[str, ...]:
    """The ids in the order of device index and replica; the kubelet gives them in none.

    Raises InputError for an id that isn't the resource's, is named twice or unhealthy, for no id at all, and for more than
    one replica where the pool forbids that (upstream's failRequestsGreaterThanOne, which concerns shared devices only).
    """
    known = resource.by_id()
    wanted = set(requested)
    if len(wanted) < len(requested) or not requested:
        raise InputError(resource.name, f"an allocation must name its devices once each, got {list(requested)}")
    for device_id in requested:
        if device_id not in known:
            problem = f"unknown device {device_id!r}: the node's inventory has changed since; create the pod again"
            raise InputError(resource.name, problem)
        if not known[device_id].healthy:
            reason = known[device_id].reason or "no reason given"
            raise InputError(resource.name, f"device {device_id!r} is unhealthy ({reason}); create the pod again")
    if resource.replicas > 1 and resource.fail_requests_greater_than_one and len(requested) > 1:
        problem = f"a container may ask for 1 shared device at most, not {len(requested)} (failRequestsGreaterThanOne)"
        raise InputError(resource.name, problem)
    return tuple(device_id for device_id in known if device_id in wanted)


def device_files(offer: Offer, device_ids: Sequence[str]) -> dict[int, dict[str, object]]:
    """The content of /edev/<index> for each device; links go to the other devices of the same container."""
    known = offer.resource.by_id()
    replicas: dict[int, int | None] = {}
    entries: dict[int, DeviceEntry] = {}
    for device_id in device_ids:
        entry = known[device_id]
        replicas.setdefault(entry.device.index, split_device_id(device_id)[1])
        entries[entry.device.index] = entry
    return {
        index: {
            "uuid": entry.device.uuid,
            "index": index,
            "gpu_type": entry.device.gpu_type,
            "memory_bytes": entry.device.memory_bytes,
            "node": offer.node,
            "numa_node": entry.numa_node,
            "links": {peer.device.uuid: _link(entry, peer) for peer in entries.values() if peer is not entry},
            "replica": replicas[index],
            "resource": offer.resource.name,
        }
        for index, entry in entries.items()
    }


def environment(offer: Offer, device_ids: Sequence[str], token: str) -> dict[str, str]:
    """The container's variables. A device of which it has several replicas is visible once."""
    visible = ",".join(dict.fromkeys(split_device_id(device_id)[0] for device_id in device_ids))
    variables = {
        names.TOKEN_VARIABLE: token,
        names.MANAGER_SOCKET_VARIABLE: names.CONTAINER_MANAGER_SOCKET,
        names.VISIBLE_DEVICES_VARIABLE: visible,
        names.RESOURCE_VARIABLE: offer.resource.name,
    }
    if offer.compat.nvidia_env:
        variables |= dict.fromkeys(names.NVIDIA_VARIABLES, visible)
    return variables


def mounts(
    layout: NodeLayout, edev_dir: Path, *, nvidia_smi: bool, is_file: Callable[[Path], bool]
) -> tuple[Mount, ...]:
    """The container's mounts: directories, and nvidia-smi only where it is a file now (a missing source of a mount would be
    made by the container runtime, as a directory). `is_file` is asked for files that stand for what may be absent.
    """
    found = [
        Mount(str(layout.run_dir), names.CONTAINER_RUN_DIR),
        Mount(str(edev_dir), names.CONTAINER_EDEV_DIR),
    ]
    if nvidia_smi and is_file(layout.nvidia_smi):
        found.append(Mount(str(layout.nvidia_smi), names.CONTAINER_NVIDIA_SMI))
    if is_file(layout.python_dir / "emulator_runtime" / "__init__.py"):
        found.append(Mount(str(layout.python_dir), names.CONTAINER_TOOLS_DIR))
    return tuple(found)


def _link(one: DeviceEntry, other: DeviceEntry) -> str:
    return "NVLink" if one.link_group == other.link_group else "PCIe"
