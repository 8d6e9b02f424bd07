"""The emulated GPUs of a node and their resource names, in one JSON format for a file, a Node's annotation and a pool.

{"version": 1, "node": "worker1", "pool": "default", "compat": {"nvidiaEnv": false}, "cuda": {"enabled": true}, "resources": [
  {"name": "emugpu.dev/emuGPU", "replicas": 1, "sharing": "exclusive", "failRequestsGreaterThanOne": false, "devices": [
    {"index": 0, "gpu_type": "A100-SXM4-80GB", "memory_bytes": 85899345920, "numa_node": 0, "link_group": 0,
     "healthy": true, "reason": ""}]}]}

What the jobs of the node share beside devices, if anything, is in `"hostResources"` (host_resources.py).

A MIG instance is a device too, with `"mig": {"gpu": 0, "start": 4}`: the index of its GPU and its first memory slice there
(emulator_runtime/domain/mig.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from emulator_runtime.domain.errors import UnknownNameError
from emulator_runtime.domain.gpu import Device, MigPlace
from emulator_runtime.domain.json_document import Field, parse
from emulator_runtime.domain.mig import MEMORY_SLICES, check_places
from emulator_runtime.domain.stages import HostResource
from emulator_runtime.domain.units import MAX_UNIT_NS
from emulator_runtime.node import host_resources
from emulator_runtime.node.layout import HOST_RESOURCE

VERSION = 1
MAX_DEVICES = 1024
"""Maximum per node. The largest machines have 16 GPUs, so more is a mistake; a message with 1024 devices is still small."""
MAX_REPLICAS = 1024
MAX_INDEX = 65535
EXCLUSIVE = "exclusive"
SHARING_MODES = ("fifo", "fair", "weighted", "priority", "srtf", "mps", "time-slicing")
"""The ways in which several holders share a device (emulator_runtime/sharing/modes)."""
DEFAULT_SHARING = "fifo"

_SEPARATOR = "::"
_GONE = "its device is still held by a pod whose own id has left the inventory"
_MIG_RESOURCE = "/mig-"
# An extended resource's name: DNS subdomain, slash, qualified name. Source: Kubernetes API, pkg/apis/core/v1/helper
# (IsExtendedResourceName); "requests.<name>" must be a qualified name too, hence 244 characters before the slash.
_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_RESOURCE_NAME = re.compile(rf"(?=[^/]{{1,244}}/){_LABEL}(\.{_LABEL})*/[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Compat:
    """What a pool imitates in addition. `nvidia_env`: containers also get NVIDIA's environment variables."""

    nvidia_env: bool = False


@dataclass(frozen=True, slots=True)
class Cuda:
    """What a pool's containers get for CUDA programs. `enabled`: the emulated libraries. `constant_ns`: the time of every kernel;
    0: it follows from the kernel's operations and bytes."""

    enabled: bool = True
    constant_ns: int = 0


@dataclass(frozen=True, slots=True)
class DeviceEntry:
    """A device and its position in the node. Devices of one link group have fast links (NVLink) to each other."""

    device: Device
    numa_node: int = 0
    link_group: int = 0
    healthy: bool = True
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ResourceEntry:
    """The devices behind one resource name. With `replicas` > 1, that many holders share each device, in the way that `sharing`
    names.

    `moved`: ids that stand for other devices than that of their name, with the ids of these devices. The node's manager adds them
    to what it publishes (sharing_manager/devices/slots.py).
    """

    name: str
    devices: tuple[DeviceEntry, ...]
    replicas: int = 1
    fail_requests_greater_than_one: bool = False
    sharing: str = EXCLUSIVE
    longest_unit_ns: int = MAX_UNIT_NS
    """The longest work for which other holders may have to wait."""
    moved: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.replicas > 1 and self.sharing == EXCLUSIVE:
            object.__setattr__(self, "sharing", DEFAULT_SHARING)

    def device_ids(self, entry: DeviceEntry) -> tuple[str, ...]:
        """The ids under which the kubelet knows this device: its UUID, or `UUID::0`, `UUID::1`, ... if it is shared."""
        uuid = entry.device.uuid
        return (uuid,) if self.replicas == 1 else tuple(f"{uuid}{_SEPARATOR}{n}" for n in range(self.replicas))

    def by_id(self) -> dict[str, DeviceEntry]:
        """Every id of this resource and the device for which it stands, ordered by index and replica of the id."""
        ordered = sorted(self.devices, key=lambda entry: entry.device.index)
        own = {device_id: entry for entry in ordered for device_id in self.device_ids(entry)}
        gone = {device_id: replace(own[device_id], healthy=False, reason=_GONE) for device_id, _ in self.moved}
        return own | {device_id: own.get(device, gone[device_id]) for device_id, device in self.moved}


@dataclass(frozen=True, slots=True)
class Inventory:
    """All resources of one node. A device's index is unique across all resources.

    `host_resources`: what the node's jobs share beside devices: its storage, its network and links to devices.
    `cleanup`: emugpu is being removed from this node; the inventory then has no resources, and the node directory is emptied.
    """

    node: str
    resources: tuple[ResourceEntry, ...]
    pool: str = ""
    compat: Compat = field(default_factory=Compat)
    cuda: Cuda = field(default_factory=Cuda)
    cleanup: bool = False
    host_resources: tuple[HostResource, ...] = ()

    def with_moved(self, moved: Mapping[str, str]) -> Inventory:
        """The same inventory, in which these ids stand for these devices."""
        return replace(self, resources=tuple(_with_moved(resource, moved) for resource in self.resources))

    @property
    def in_use(self) -> bool:
        """Whether the node belongs to a pool (which may have no devices) and emugpu isn't being removed from it."""
        return bool(self.pool or self.resources) and not self.cleanup

    def entries(self) -> Iterator[DeviceEntry]:
        """Every device of the node, ordered by resource."""
        for resource in self.resources:
            yield from resource.devices

    def to_json(self) -> str:
        """One line of JSON; equal inventories give equal lines."""
        document = {
            "version": VERSION,
            "node": self.node,
            "pool": self.pool,
            "compat": {"nvidiaEnv": self.compat.nvidia_env},
            "resources": [_resource_json(resource) for resource in self.resources],
        }
        document |= {} if self.cuda == Cuda() else {"cuda": _cuda_json(self.cuda)}
        document |= {"cleanup": True} if self.cleanup else {}
        if self.host_resources:
            document |= {"hostResources": host_resources.to_document(self.host_resources)}
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, place: str) -> Inventory:
        """The inventory in `text`. Raises InputError naming `place` (a file, an annotation) and the path of the mistake."""
        members = parse(text, place).members(
            ("version", "node", "resources"), ("pool", "compat", "cuda", "cleanup", "hostResources")
        )
        members["version"].whole(least=VERSION, most=VERSION)
        node = members["node"].text(least=1, most=253)
        resources = tuple(_resource(f, node) for f in members["resources"].elements())
        _check_unique(members["resources"], resources)
        check_places((e.device for r in resources for e in r.devices), f"{place}: resources")
        cleanup = members["cleanup"].flag() if "cleanup" in members else False
        if cleanup and resources:
            raise members["cleanup"].error("goes with no resources; empty them")
        return cls(
            node=node,
            resources=resources,
            pool=members["pool"].text(most=253) if "pool" in members else "",
            compat=_compat(members["compat"]) if "compat" in members else Compat(),
            cuda=_cuda(members["cuda"]) if "cuda" in members else Cuda(),
            cleanup=cleanup,
            host_resources=host_resources.from_document(members["hostResources"]) if "hostResources" in members else (),
        )


def split_device_id(device_id: str) -> tuple[str, int | None]:
    """`UUID::3` is ("UUID", 3); a device that isn't shared is ("UUID", None). Any other suffix belongs to the UUID."""
    uuid, separator, replica = device_id.rpartition(_SEPARATOR)
    if not separator or not (replica.isascii() and replica.isdigit()):
        return device_id, None
    return uuid, int(replica)


def is_resource_name(name: str) -> bool:
    """Whether `name` can be a resource name for devices: a Kubernetes extended resource (qualified, not of kubernetes.io, no
    `requests.` prefix) other than HOST_RESOURCE, which has no devices."""
    taken = "kubernetes.io/" in name or name.startswith("requests.") or name == HOST_RESOURCE
    return not taken and _RESOURCE_NAME.fullmatch(name) is not None


def mig_resource(resource: str, profile: str) -> str:
    """The resource of instances of a profile under the strategy mixed, in the domain of the resource of whole GPUs, such as
    nvidia.com/mig-3g.20gb."""
    return f"{resource.partition('/')[0]}{_MIG_RESOURCE}{profile}"


def is_mig_resource(name: str) -> bool:
    return _MIG_RESOURCE in name


def repeated(names: Iterable[str | int]) -> str | int | None:
    """The first element that occurs a second time; None if all are different."""
    seen: set[str | int] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _with_moved(resource: ResourceEntry, moved: Mapping[str, str]) -> ResourceEntry:
    ids = {device_id for entry in resource.devices for device_id in resource.device_ids(entry)}
    return replace(resource, moved=tuple((i, moved[i]) for i in sorted(ids.intersection(moved))))


def _resource(document: Field, node: str) -> ResourceEntry:
    members = document.members(
        ("name", "devices"), ("replicas", "failRequestsGreaterThanOne", "sharing", "longestUnitNs", "moved")
    )
    name = members["name"].text()
    if not is_resource_name(name):
        raise members["name"].error(f"{name!r} is no name of an extended resource, such as emugpu.dev/emuGPU")
    fail, sharing = members.get("failRequestsGreaterThanOne"), members.get("sharing")
    if sharing is not None and sharing.text() not in (EXCLUSIVE, *SHARING_MODES):
        raise UnknownNameError(f"{sharing.place}: {sharing.path}", "way to share a GPU", sharing.text(), SHARING_MODES)
    found = ResourceEntry(
        name=name,
        devices=tuple(_device(f, node) for f in members["devices"].elements()),
        replicas=members["replicas"].whole(least=1, most=MAX_REPLICAS) if "replicas" in members else 1,
        fail_requests_greater_than_one=fail.flag() if fail else False,
        sharing=sharing.text() if sharing is not None else EXCLUSIVE,
        longest_unit_ns=members["longestUnitNs"].whole(least=1, most=MAX_UNIT_NS)
        if "longestUnitNs" in members
        else MAX_UNIT_NS,
    )
    if found.sharing != EXCLUSIVE and any(entry.device.mig is not None for entry in found.devices):
        raise members["devices"].error(
            f"has MIG instances, which have one holder each, but is shared ({found.sharing})"
        )
    moved = members["moved"].items() if "moved" in members else {}
    return _with_moved(found, {device_id: device.text(least=1) for device_id, device in moved.items()})


def _device(document: Field, node: str) -> DeviceEntry:
    members = document.members(
        ("index", "gpu_type", "memory_bytes"), ("numa_node", "link_group", "healthy", "reason", "mig")
    )
    device = Device(
        node=node,
        index=members["index"].whole(most=MAX_INDEX),
        gpu_type=members["gpu_type"].text(least=1),
        memory_bytes=members["memory_bytes"].whole(least=1),
        mig=mig_place(members["mig"]) if "mig" in members else None,
    )
    return DeviceEntry(
        device=device,
        numa_node=members["numa_node"].whole(most=MAX_INDEX) if "numa_node" in members else 0,
        link_group=members["link_group"].whole(most=MAX_INDEX) if "link_group" in members else 0,
        healthy=members["healthy"].flag() if "healthy" in members else True,
        reason=members["reason"].text() if "reason" in members else "",
    )


def mig_place(document: Field) -> MigPlace:
    """The member `mig` of a device. Raises InputError."""
    members = document.members(("gpu", "start"))
    return MigPlace(members["gpu"].whole(most=MAX_INDEX), members["start"].whole(most=MEMORY_SLICES - 1))


def mig_member(device: Device) -> dict[str, object]:
    """The member `mig` of an instance; nothing for a whole GPU."""
    return {} if device.mig is None else {"mig": {"gpu": device.mig.gpu, "start": device.mig.start}}


def mig_facts(device: Device) -> dict[str, object]:
    """The member `mig` for programs that show GPUs: also which GPU it is on, by UUID. Nothing for a whole GPU."""
    return {} if device.mig is None else {"mig": {"gpu": device.gpu_index, "gpu_uuid": device.gpu_uuid}}


def _compat(document: Field) -> Compat:
    members = document.members((), ("nvidiaEnv",))
    return Compat(nvidia_env=members["nvidiaEnv"].flag() if "nvidiaEnv" in members else False)


def _cuda(document: Field) -> Cuda:
    members = document.members((), ("enabled", "constantNs"))
    return Cuda(
        enabled=members["enabled"].flag() if "enabled" in members else True,
        constant_ns=members["constantNs"].whole(most=MAX_UNIT_NS) if "constantNs" in members else 0,
    )


def _cuda_json(cuda: Cuda) -> dict[str, object]:
    return {"enabled": cuda.enabled, **({"constantNs": cuda.constant_ns} if cuda.constant_ns else {})}


def _check_unique(document: Field, resources: tuple[ResourceEntry, ...]) -> None:
    if (name := repeated(resource.name for resource in resources)) is not None:
        raise document.error(f"has {name} twice; give each resource once, with all its devices")
    indexes = [entry.device.index for resource in resources for entry in resource.devices]
    if (index := repeated(indexes)) is not None:
        raise document.error(f"has the device index {index} twice; an index is unique on its node, over all resources")
    if len(indexes) > MAX_DEVICES:
        raise document.error(f"has {len(indexes)} devices; a node has {MAX_DEVICES} at most")


def _resource_json(resource: ResourceEntry) -> dict[str, object]:
    document: dict[str, object] = {
        "name": resource.name,
        "replicas": resource.replicas,
        "sharing": resource.sharing,
        "failRequestsGreaterThanOne": resource.fail_requests_greater_than_one,
        **({} if resource.longest_unit_ns == MAX_UNIT_NS else {"longestUnitNs": resource.longest_unit_ns}),
        "devices": [
            {
                "index": entry.device.index,
                "gpu_type": entry.device.gpu_type,
                "memory_bytes": entry.device.memory_bytes,
                "numa_node": entry.numa_node,
                "link_group": entry.link_group,
                "healthy": entry.healthy,
                "reason": entry.reason,
                **mig_member(entry.device),
            }
            for entry in resource.devices
        ],
    }
    return document | ({"moved": dict(resource.moved)} if resource.moved else {})
