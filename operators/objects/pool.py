"""EmuGPUPool: which nodes have which emulated GPUs, and which CPUs and memory those nodes emulate."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from annotated_types import Interval, Le, Len
from pydantic import Field, StrictBool, StrictFloat, StrictStr, model_validator

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.gpu import Device, GpuSpec
from emulator_runtime.domain.mig import COMPUTE_SLICES, placed, profile_of
from emulator_runtime.domain.stages import LEAST_SPEED, MOST_SPEED, NETWORK, STORAGE, HostResource
from emulator_runtime.domain.stages import link as link_resource
from emulator_runtime.domain.units import MAX_UNIT_NS, NS_PER_S, read_duration_ns
from emulator_runtime.node.inventory import SHARING_MODES, Compat, Cuda, is_resource_name
from emulator_runtime.node.layout import GPU_RESOURCE, HOST_RESOURCE
from emulator_runtime.profiles.catalogue import bundled_catalogue
from operators.kube.documents import Key, object_at, text_at, whole_at
from operators.objects.custom_resource import (
    Column,
    Definition,
    Part,
    Report,
    Rule,
    Schema,
    problem,
    read_leniently,
    read_strictly,
    served,
)
from operators.objects.forms import DURATION, Conditions, GpuType, Int32, Int64, quantity_type, text_type
from operators.objects.selectors import Selector

_MOST_GPUS = 128
_ROOFLINE = "roofline"
_KERNEL_TIME = "^(roofline|[0-9]+([.][0-9]+)?(ns|us|ms|s))$"

_RESOURCE_NAME = Rule(
    "write a name with a domain, such as emugpu.dev/emuGPU or nvidia.com/gpu; pods may say emuGPU for short (emugpu.dev/host is "
    "no GPU)",
    "self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && "
    "!self.contains('kubernetes.io/') && !self.startsWith('requests.') && self != 'emugpu.dev/host'",
    lambda name: is_resource_name(name) and name != HOST_RESOURCE,
)
ResourceName = Annotated[str, text_type(most=253), Schema(_RESOURCE_NAME)]
Count = Annotated[Int32, Interval(ge=1, le=64)]
_OTHER_NAME = Annotated[str, text_type(least=1, most=253)]


@dataclass(frozen=True, slots=True)
class GpuGroup:
    """`count` equal devices of each node. `link_group_size` devices have fast links to each other (1: none has)."""

    gpu: GpuSpec
    count: int
    memory_bytes: int
    link_group_size: int
    numa_nodes: int
    resource: str


class Gpus(Part):
    """An element of spec.gpus; 0 and empty: not stated."""

    rules = (
        Rule(
            "linkGroupSize: a group of devices with fast links can't be larger than count",
            "!has(self.linkGroupSize) || self.linkGroupSize <= self.count",
            lambda gpus: gpus.link_group_size <= gpus.count,
            at="linkGroupSize",
        ),
        Rule(
            "numaNodes: can't be more than count; a NUMA node has at least one device",
            "!has(self.numaNodes) || self.numaNodes <= self.count",
            lambda gpus: gpus.numa_nodes <= gpus.count,
            at="numaNodes",
        ),
    )
    gpu_type: Annotated[
        GpuType,
        Schema(
            Rule(
                "is a MIG instance; give the whole GPU's type here, and the profile in spec.mig",
                holds=lambda gpu_type: profile_of(gpu_type)[1] is None,
            )
        ),
    ] = Field(
        alias="type",
        description="A GPU type or one of its aliases, as `emugpu gpus` lists them (A100-SXM4-80GB, V100, ...).",
    )
    count: Count = Field(description="How many per node.")
    memory_bytes: Annotated[
        int, quantity_type(1, "memory as a quantity of bytes above 0, such as 80Gi", above_0=True)
    ] = Field(0, alias="memory", description="Memory of one device, if not the type's own.")
    link_group_size: Annotated[Int32, Interval(ge=1)] = Field(
        0,
        description="How many devices have fast links (NVLink) to each other; default: all where the type has NVLink, else none.",
    )
    numa_nodes: Annotated[Int32, Interval(ge=1, le=8)] = served(1, "Over how many NUMA nodes the devices are spread.")
    resource_name: ResourceName = Field("", description="The name that pods request, if not spec.resourceName.")

    def group(self, resource: str) -> GpuGroup:
        """With what is not stated filled in; `resource`: the pool's."""
        gpu = bundled_catalogue().specs[self.gpu_type]
        linked = self.count if gpu.peer_link_bytes_per_s > 0 else 1
        return GpuGroup(
            gpu=gpu,
            count=self.count,
            memory_bytes=self.memory_bytes or gpu.memory_bytes,
            link_group_size=self.link_group_size or linked,
            numa_nodes=self.numa_nodes,
            resource=self.resource_name or resource,
        )


class SharedResource(Part):
    """An element of sharing.timeSlicing.resources or sharing.mps.resources."""

    name: _OTHER_NAME
    rename: _OTHER_NAME = ""
    replicas: Annotated[Int32, Interval(ge=1, le=1024)]
    devices: Annotated[Any, Schema(x_kubernetes_preserve_unknown_fields=True)] = Field(
        None, description="all, a count, or a list of indexes or UUIDs."
    )


class SharedResources(Part):
    """As in the file of NVIDIA's device plugin."""

    rename_by_default: StrictBool = Field(False, description="Offer a shared resource as <name>.shared.")
    fail_requests_greater_than_one: StrictBool = Field(
        False, description="Refuse a container that requests more than one share."
    )
    resources: Annotated[tuple[SharedResource, ...], Len(1, 16)]


class Sharing(Part):
    """spec.sharing; node/sharing_file.py applies it."""

    time_slicing: SharedResources | None = None
    mps: SharedResources | None = None
    mode: Literal["", "fifo", "fair", "weighted", "priority", "srtf", "mps", "time-slicing"] = Field(
        "",
        description="How the holders share a device; what the section stands for where this is absent.",
        json_schema_extra={"enum": list(SHARING_MODES)},
    )
    longest_unit: Annotated[
        str,
        text_type(
            DURATION,
            "is no time above 0 and up to 10m, such as 500ms or 30s",
            most=32,
            also=lambda text: 0 < (read_duration_ns(text) or 0) <= MAX_UNIT_NS,
        ),
    ] = Field(
        "",
        description="The longest step on a shared device, for which its other holders may have to wait, such as 500ms or 30s; "
        "default 10s, at most 10m.",
    )


_PROFILE = r"^[1-7]g\.[1-9][0-9]{0,2}gb$"


class MigConfig(Part):
    """An element of spec.mig.configs: what mig-parted's configuration says of some devices."""

    devices: Annotated[
        tuple[Annotated[Int32, Interval(ge=0, le=_MOST_GPUS - 1)], ...],
        Len(1, _MOST_GPUS),
        Schema(x_kubernetes_list_type="set"),
    ] = Field((), description="Indexes of the GPUs that are cut so, counted over spec.gpus; all where this is absent.")
    mig_devices: Annotated[
        dict[str, Annotated[Int32, Interval(ge=1, le=COMPUTE_SLICES)]],
        Len(1, COMPUTE_SLICES),
        Schema(
            Rule(
                "write profiles as `nvidia-smi mig -lgip` lists them, such as 3g.20gb, without +me or +gfx",
                "self.all(name, name.matches('" + _PROFILE.replace("\\", "\\\\") + "'))",
                lambda profiles: all(re.fullmatch(_PROFILE, name) for name in profiles),
            ),
            Rule(
                "a GPU has 7 compute slices; use fewer or smaller instances",
                "!self.all(name, name.matches('^[1-7]g')) || "
                "self.map(name, int(name.substring(0, 1)) * self[name]).sum() <= 7",
                lambda profiles: sum(int(name[0]) * count for name, count in profiles.items()) <= COMPUTE_SLICES,
            ),
        ),
    ] = Field(description="How many instances of each profile a GPU has, such as {3g.20gb: 2}.")

    @property
    def profiles(self) -> tuple[str, ...]:
        """One name for each instance."""
        return tuple(name for name, count in self.mig_devices.items() for _ in range(count))


class Mig(Part):
    """spec.mig."""

    rules = (
        Rule(
            "configs: an element without devices is for all GPUs, so it must be the only one",
            "self.configs.size() == 1 || self.configs.all(c, has(c.devices))",
            lambda mig: len(mig.configs) == 1 or all(config.devices for config in mig.configs),
            at="configs",
        ),
        Rule(
            "configs: a GPU is cut in one way; name each index once",
            "self.configs.all(c, !has(c.devices) || c.devices.all(i, "
            "self.configs.exists_one(d, has(d.devices) && i in d.devices)))",
            lambda mig: len({i for c in mig.configs for i in c.devices}) == sum(len(c.devices) for c in mig.configs),
            at="configs",
        ),
        Rule(
            "strategy: single needs equal instances on all GPUs (one element for all GPUs, one profile); use mixed",
            "self.strategy != 'single' || (self.configs.size() == 1 && !has(self.configs[0].devices) && "
            "self.configs[0].migDevices.size() == 1)",
            lambda mig: mig.strategy != "single" or mig.single,
            at="strategy",
        ),
    )
    strategy: Literal["single", "mixed"] = served(
        "single",
        "As in NVIDIA's device plugin. single: instances are offered under the pool's resource name, and the product label ends "
        "in -MIG-<profile>. mixed: under mig-<profile> in the same domain, beside whole GPUs.",
    )
    configs: Annotated[tuple[MigConfig, ...], Len(1, 16)] = Field(
        description="How GPUs are cut; one that no element names stays whole."
    )

    @property
    def single(self) -> bool:
        """Whether all instances are equal, and no GPU is whole."""
        return len(self.configs) == 1 and not self.configs[0].devices and len(self.configs[0].mig_devices) == 1

    def config_of(self, index: int) -> int | None:
        """The number of the element that says how this GPU is cut; None: it is whole."""
        return next((n for n, c in enumerate(self.configs) if not c.devices or index in c.devices), None)

    def profiles_of(self, index: int) -> tuple[str, ...]:
        """The profiles to which this GPU is cut; none: it is whole."""
        number = self.config_of(index)
        return () if number is None else self.configs[number].profiles


class Imitated(Part):
    """spec.compat."""

    nvidia_labels: StrictBool = served(False, "Label nodes under nvidia.com/ too, as GPU feature discovery does.")
    nvidia_env: StrictBool = served(False, "Set NVIDIA_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES in containers too.")


class CudaPrograms(Part):
    """spec.cuda."""

    enabled: StrictBool = served(
        True, "Unmodified CUDA programs, such as PyTorch's CUDA build, run in containers with devices of this pool."
    )
    time: Annotated[
        str,
        text_type(
            _KERNEL_TIME,
            "is neither roofline nor a time above 0 and up to 1s, such as 20us",
            most=32,
            also=lambda text: text == _ROOFLINE or 0 < (read_duration_ns(text) or 0) <= NS_PER_S,
        ),
    ] = served(
        _ROOFLINE,
        "How long a kernel takes: roofline (by its operations and bytes, and the GPU's data sheet), or a time such as 20us.",
    )


class Emulated(Part):
    """spec.emulated; None: what the node really has."""

    keywords = {"minProperties": 1}
    cpu_milli: (
        Annotated[int, quantity_type(1000, "CPUs as a quantity above 0, such as 24 or 500m", above_0=True)] | None
    ) = Field(None, alias="cpu", description="CPUs, such as 24.")
    memory_bytes: (
        Annotated[int, quantity_type(1, "memory as a quantity of bytes above 0, such as 100Gi", above_0=True)] | None
    ) = Field(None, alias="memory", description="Memory, such as 100Gi.")


Speed = Annotated[
    StrictFloat,
    Le(MOST_SPEED),
    Schema(  # an API server compares a whole number with the whole part of `minimum`
        Rule(
            f"must be a number from {LEAST_SPEED:g} on",
            f"self >= {LEAST_SPEED}",
            lambda speed: speed >= LEAST_SPEED,
        )
    ),
]


class Link(Part):
    """An element of spec.hostResources.links."""

    gpus: Annotated[
        tuple[Annotated[Int32, Interval(ge=0, le=_MOST_GPUS - 1)], ...],
        Len(1, _MOST_GPUS),
        Schema(x_kubernetes_list_type="set"),
    ] = Field(description="Indexes of the GPUs behind it, counted over spec.gpus.")
    speed: Speed = served(1.0, "How many times as fast as the transferTime of EmuJobs says.", schema_default=1)


class HostResources(Part):
    """spec.hostResources; None: each job has it for itself."""

    keywords = {"minProperties": 1}
    rules = (
        Rule(
            "links: a GPU is behind one link; name each index once",
            "!has(self.links) || self.links.all(l, l.gpus.all(i, self.links.exists_one(m, i in m.gpus)))",
            lambda host: len({i for each in host.links for i in each.gpus}) == sum(len(e.gpus) for e in host.links),
            at="links",
        ),
    )
    storage: Speed | None = Field(
        None,
        description="The storage, which all jobs of the node share: its speed; at 1 a fetch takes the fetchTime alone.",
    )
    network: Speed | None = Field(
        None,
        description="The network, which all jobs of the node share: its speed; at 1 an exchange takes the exchangeTime.",
    )
    links: Annotated[tuple[Link, ...], Len(1, 16)] = Field(
        (),
        description="Links (switches), each shared by the jobs with GPUs behind it. Other GPUs have links of their own.",
    )

    def of(self, devices: Sequence[Device]) -> tuple[HostResource, ...]:
        """What the jobs of a node with these devices share."""
        speeds = {STORAGE: self.storage, NETWORK: self.network}
        shared = [HostResource(name, speed) for name, speed in speeds.items() if speed is not None]
        for number, each in enumerate(self.links):
            behind = tuple(device.uuid for device in devices if device.gpu_index in each.gpus)
            shared.append(link_resource(number, each.speed, behind))
        return tuple(shared)


class UnhealthyDevice(Part):
    """An element of spec.unhealthy."""

    node: Annotated[str, text_type(least=1, most=253)]
    index: Annotated[Int32, Interval(ge=0)]
    reason: Annotated[str, text_type(most=256)] = served("marked unhealthy in the pool")


def _own_resources(section: str, shared: Callable[[Sharing], SharedResources | None]) -> Rule:
    """Only the pool's own resources may be shared."""
    path = f"self.sharing.{section}"
    return Rule(
        f"spec.sharing.{section}.resources: name the pool's own resource (spec.resourceName or spec.gpus[].resourceName), "
        "or nvidia.com/gpu, which stands for it",
        f"!has(self.sharing) || !has({path}) || {path}.resources.all(r, "
        "r.name.startsWith('nvidia.com/') || !r.name.contains('/') || r.name == self.resourceName || "
        "(has(self.gpus) && self.gpus.exists(g, has(g.resourceName) && g.resourceName == r.name)))",
        lambda spec: spec.owns(shared(spec.shared)),
        at=f"sharing.{section}.resources",
    )


class PoolSpec(Part):
    """What a pool gives each of its nodes; without `gpus` emulated CPUs and memory alone."""

    rules = (
        Rule(
            "spec.gpus: name at least one GPU type; a pool without GPUs needs spec.emulated",
            "(has(self.gpus) && size(self.gpus) > 0) || has(self.emulated)",
            lambda spec: bool(spec.gpus) or spec.emulated is not None,
            at="gpus",
        ),
        Rule(
            "spec.gpus: a node has 128 emulated GPUs at most, over all types; lower the counts",
            f"!has(self.gpus) || self.gpus.map(g, g.count).sum() <= {_MOST_GPUS}",
            lambda spec: sum(each.count for each in spec.gpus) <= _MOST_GPUS,
            at="gpus",
        ),
        _own_resources("timeSlicing", lambda sharing: sharing.time_slicing),
        _own_resources("mps", lambda sharing: sharing.mps),
        Rule(
            "spec.sharing.mps: goes not together with timeSlicing; keep one of them",
            "!has(self.sharing) || !has(self.sharing.timeSlicing) || !has(self.sharing.mps)",
            lambda spec: spec.shared.time_slicing is None or spec.shared.mps is None,
            at="sharing.mps",
        ),
        Rule(
            "spec.mig: goes not together with sharing, since an instance has one holder; keep one of them",
            "!has(self.mig) || !has(self.sharing) || !(has(self.sharing.timeSlicing) || has(self.sharing.mps))",
            lambda spec: spec.mig is None or (spec.shared.time_slicing is None and spec.shared.mps is None),
            at="mig",
        ),
        Rule(
            "spec.mig.configs: names a GPU that spec.gpus doesn't have; indexes begin at 0 and count over all types",
            "!has(self.mig) || self.mig.configs.all(c, !has(c.devices) || c.devices.all(i, has(self.gpus) && "
            "i < self.gpus.map(g, g.count).sum()))",
            lambda spec: (
                spec.mig is None
                or all(i < sum(g.count for g in spec.gpus) for c in spec.mig.configs for i in c.devices)
            ),
            at="mig.configs",
        ),
        Rule(
            "spec.hostResources.links: names a GPU that spec.gpus doesn't have; indexes begin at 0 and count over all types",
            "!has(self.hostResources) || !has(self.hostResources.links) || self.hostResources.links.all(l, l.gpus.all(i, "
            "has(self.gpus) && i < self.gpus.map(g, g.count).sum()))",
            lambda spec: (
                spec.shared_host is None
                or all(i < sum(g.count for g in spec.gpus) for each in spec.shared_host.links for i in each.gpus)
            ),
            at="hostResources.links",
        ),
    )
    selector: Selector = served(
        Selector.model_construct(),
        "Which nodes, as a LabelSelector. Empty means every node that is no control plane.",
        alias="nodeSelector",
        schema_default={},
    )
    gpus: Annotated[tuple[Gpus, ...], Len(max_length=16)] = Field(
        (),
        description="The devices of each node, in the order of their indexes. None for nodes that offer emulated CPUs and memory "
        "alone.",
    )
    resource_name: ResourceName = served(GPU_RESOURCE, "The name that pods request.")
    shared: Sharing = Field(
        Sharing.model_construct(),
        alias="sharing",
        description="Several holders for one device, in the terms of NVIDIA's device plugin.",
    )
    mig: Mig | None = Field(
        None,
        description="GPUs that are cut into MIG instances, each a device with one holder; none where this is absent.",
    )
    shared_host: HostResources | None = Field(
        None,
        alias="hostResources",
        description="What the jobs of a node share beside devices, in the words of a cluster file: all that is demanded of it at "
        "a time is served at once, in equal parts. What is absent each job has for itself.",
    )
    imitated: Imitated = Field(
        Imitated.model_construct(), alias="compat", description="What the pool imitates beyond its own names."
    )
    programs: CudaPrograms = Field(
        CudaPrograms.model_construct(), alias="cuda", description="What containers get for CUDA programs."
    )
    emulated: Emulated | None = Field(
        None,
        description="What each node emulates for EmuJobs to divide; what it really has where this is absent.",
    )
    marked: Annotated[
        tuple[UnhealthyDevice, ...],
        Len(max_length=256),
        Schema(
            Rule(
                "each needs a node and index of its own",
                holds=lambda marked: len({(each.node, each.index) for each in marked}) == len(marked),
            ),
            x_kubernetes_list_type="map",
            x_kubernetes_list_map_keys=["node", "index"],
        ),
    ] = Field((), alias="unhealthy", description="Devices that are broken on purpose.")

    @model_validator(mode="after")
    def _check_cuts(self) -> Self:
        """Whether each GPU that is cut has these profiles, and they fit on it together."""
        if self.mig is None:
            return self
        types = [group.gpu.gpu_type for group in self.groups for _ in range(group.count)]
        cuts = [(number, types[i]) for i in range(len(types)) if (number := self.mig.config_of(i)) is not None]
        for number, gpu_type in dict.fromkeys(cuts):
            try:
                placed(gpu_type, self.mig.configs[number].profiles, "mig")
            except InputError as error:
                raise problem(str(error).removeprefix("mig: "), "mig", "configs", number, "migDevices") from error
        return self

    def owns(self, section: SharedResources | None) -> bool:
        """Whether each shared resource of the section is one of the pool's, or may be NVIDIA's name for it."""
        own = {self.resource_name, *(each.resource_name for each in self.gpus)}
        return section is None or all(
            shared.name.startswith("nvidia.com/") or "/" not in shared.name or shared.name in own
            for shared in section.resources
        )

    @cached_property
    def groups(self) -> tuple[GpuGroup, ...]:
        return tuple(each.group(self.resource_name) for each in self.gpus)

    @cached_property
    def sharing(self) -> Mapping[str, object]:
        """As it is written, for node/sharing_file.py."""
        return self.shared.model_dump(mode="json", by_alias=True, exclude_unset=True)

    @property
    def compat(self) -> Compat:
        return Compat(nvidia_env=self.imitated.nvidia_env)

    @property
    def cuda(self) -> Cuda:
        constant_ns = None if self.programs.time == _ROOFLINE else read_duration_ns(self.programs.time)
        return Cuda(self.programs.enabled, constant_ns or 0)

    def host_resources(self, devices: Sequence[Device]) -> tuple[HostResource, ...]:
        """What the jobs of a node with these devices share beside them."""
        return () if self.shared_host is None else self.shared_host.of(devices)

    @property
    def nvidia_labels(self) -> bool:
        return self.imitated.nvidia_labels

    @cached_property
    def unhealthy(self) -> Mapping[tuple[str, int], str]:
        """Reason by node and index of the device."""
        return {(each.node, each.index): each.reason for each in self.marked}

    @property
    def cpu_milli(self) -> int | None:
        """Emulated CPUs of each node; None: what it really has."""
        return self.emulated.cpu_milli if self.emulated is not None else None

    @property
    def memory_bytes(self) -> int | None:
        return self.emulated.memory_bytes if self.emulated is not None else None


class NodeStatus(Report):
    """An element of status.nodeStatuses."""

    name: StrictStr
    devices: Int32 = 0
    allocatable: Int32 = 0


class PoolStatus(Report):
    """What the nodes of a pool offer."""

    observed_generation: Int64 = 0
    nodes: Int32 = 0
    devices: Int32 = 0
    allocatable: Int32 = 0
    unhealthy: Int32 = 0
    conditions: Conditions = ()
    node_statuses: Annotated[
        tuple[NodeStatus, ...],
        Schema(x_kubernetes_list_type="map", x_kubernetes_list_map_keys=["name"]),
    ] = ()


@dataclass(frozen=True)
class Pool:
    """One EmuGPUPool. `spec_json`, `status_json`: as the API server has them. `created`: RFC 3339, which sorts as text."""

    name: str
    uid: str
    created: str
    version: str = field(default="", compare=False)
    generation: int = 1
    deleting: bool = False
    spec_json: Mapping[str, Any] = field(default_factory=dict)
    status_json: Mapping[str, Any] = field(default_factory=dict)

    DEFINITION: ClassVar[Definition]

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Pool:
        """An EmuGPUPool as the API server sends it."""
        metadata = object_at(document, "metadata")
        return cls(
            name=text_at(metadata, "name"),
            uid=text_at(metadata, "uid"),
            created=text_at(metadata, "creationTimestamp"),
            version=text_at(metadata, "resourceVersion"),
            generation=whole_at(metadata, "generation"),
            deleting="deletionTimestamp" in metadata,
            spec_json=object_at(document, "spec"),
            status_json=object_at(document, "status"),
        )

    @property
    def key(self) -> Key:
        return Key("", self.name, self.uid, self.version)

    @cached_property
    def spec(self) -> PoolSpec:
        """Raises InputError naming pool and field; UnknownNameError at spec.gpus[i].type for a GPU type that isn't known."""
        return parse_spec(self.name, self.spec_json)

    @cached_property
    def status(self) -> PoolStatus:
        return read_leniently(PoolStatus, self.status_json)


def parse_spec(pool: str, spec: object) -> PoolSpec:
    """Raises InputError naming pool and field; UnknownNameError at spec.gpus[i].type for a GPU type that isn't known."""
    return read_strictly(PoolSpec, spec, f"EmuGPUPool {pool}")


_READY = '.status.conditions[?(@.type=="Ready")]'

Pool.DEFINITION = Definition(
    kind="EmuGPUPool",
    plural="emugpupools",
    short_name="egp",
    scope="Cluster",
    description="Gives the nodes that a selector matches emulated GPUs.",
    spec=PoolSpec,
    status=PoolStatus,
    columns=(
        Column("Nodes", "integer", ".status.nodes", "Nodes that have the pool's devices"),
        Column("Devices", "integer", ".status.devices", "Emulated devices on these nodes"),
        Column("Allocatable", "integer", ".status.allocatable", "What pods can request now"),
        Column("Ready", "string", f"{_READY}.status", "All nodes offer what the pool says"),
        Column("Reason", "string", f"{_READY}.reason", "Why it is ready or not", 1),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
    rules=(
        Rule(
            "metadata.name: 63 characters at most, because nodes are labelled with it", "size(self.metadata.name) <= 63"
        ),
    ),
)
