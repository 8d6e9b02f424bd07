"""Reads a cluster file (YAML) into a ClusterSpec: which nodes there are and what actions cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from emulator_runtime.domain.errors import InputError, UnknownNameError
from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.mig import instances, profile_of
from emulator_runtime.domain.stages import LEAST_SPEED, MOST_SPEED, NETWORK, STORAGE, HostResource
from emulator_runtime.domain.stages import link as link_resource
from emulator_runtime.domain.units import GIB
from emulator_runtime.domain.wording import quoted, shown
from emulator_runtime.node.inventory import MAX_REPLICAS
from emulator_runtime.profiles.catalogue import Catalogue, bundled_catalogue
from emulator_runtime.sharing.modes import EXCLUSIVE, MODES
from scheduler_sims.inputs.nvlink import NvlinkDomains
from scheduler_sims.inputs.outages import Failures, Outage, RandomOutages, problem_of
from scheduler_sims.inputs.yaml_file import list_of, mapping_of, number_of, read_yaml, whole_of
from scheduler_sims.interface.costs import COST_NAMES, ClusterCosts

_NODE_FIELDS = (
    "name",
    "count",
    "gpus",
    "gpu_type",
    "gpu_memory_gib",
    "cpus",
    "memory_gib",
    "labels",
    "mig",
    "sharing",
    "replicas",
    "storage",
    "network",
    "links",
    "nvlink_domain",
)
_TOP_FIELDS = ("nodes", "costs", "failures")
MAX_NODES = 10_000
MAX_GPUS_PER_NODE = 256


@dataclass(frozen=True)
class NodeSpec:
    """One emulated node. CPUs are thousandths, memory is bytes (0: none for jobs that state how much they need).

    `sharing`: how several jobs share one of its devices, one of emulator_runtime.sharing.modes.MODES; `replicas`: at most so many
    (0: any number). `resources`: what its jobs share beside devices. `nvlink`: the NVLink domain of each GPU, by its index;
    those that are missing are in a domain with the name of the node.
    """

    name: str
    cpu_milli: int
    memory_bytes: int
    devices: tuple[Device, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    sharing: str = EXCLUSIVE.name
    replicas: int = 0
    resources: tuple[HostResource, ...] = ()
    nvlink: Mapping[int, str] = field(default_factory=dict)

    def domain_of(self, device: Device) -> str:
        """The NVLink domain of one of its devices."""
        return self.nvlink.get(device.gpu_index, self.name)

    @cached_property
    def nvlink_domain(self) -> str | None:
        """The NVLink domain of all its devices; None if they are in several."""
        domains = {self.domain_of(device) for device in self.devices} if self.nvlink else {self.name}
        return domains.pop() if len(domains) == 1 else None

    @property
    def gpu_type(self) -> str | None:
        return self.devices[0].gpu_type if self.devices else None


@dataclass(frozen=True)
class ClusterSpec:
    """A cluster as its file describes it: nodes in file order, the costs of scheduling actions, and what fails."""

    nodes: tuple[NodeSpec, ...]
    costs: ClusterCosts = field(default_factory=ClusterCosts)
    failures: Failures | None = None

    @cached_property
    def gpus(self) -> int:
        return sum(len(node.devices) for node in self.nodes)

    @cached_property
    def sharing(self) -> Mapping[str, str]:
        """How each device that may be shared is shared, by UUID."""
        return {d.uuid: node.sharing for node in self.nodes if node.sharing != EXCLUSIVE.name for d in node.devices}

    @cached_property
    def resources(self) -> Mapping[str, tuple[HostResource, ...]]:
        """What the jobs of each node share beside devices, by the node's name; nodes without such resources are missing."""
        return {node.name: node.resources for node in self.nodes if node.resources}

    @cached_property
    def nvlink(self) -> NvlinkDomains:
        """Which devices NVLink joins."""
        return NvlinkDomains.of(self.nodes)

    @cached_property
    def gpu_types(self) -> tuple[str, ...]:
        """The types of GPU that are there, in file order."""
        return tuple(dict.fromkeys(device.gpu_type for node in self.nodes for device in node.devices))


def load_cluster(path: Path, catalogue: Catalogue | None = None) -> ClusterSpec:
    """The cluster that `path` describes; GPU types come from `catalogue` (default: the bundled one).

    Raises InputError that names the file and the field.
    """
    document = read_yaml(path, "cluster file")
    return parse_cluster(document, str(path), catalogue or bundled_catalogue())


def parse_cluster(document: object, place: str, catalogue: Catalogue) -> ClusterSpec:
    """The cluster of a parsed YAML document; `place` starts every error message."""
    top = mapping_of(document, place, _TOP_FIELDS)
    entries = top.get("nodes")
    if not isinstance(entries, list) or not entries:
        raise InputError(f"{place}: nodes", "must be a list of at least one node")
    nodes: list[NodeSpec] = []
    of_entries: dict[str, tuple[str, ...]] = {}
    for number, entry in enumerate(entries):
        made = _nodes(entry, f"{place}: nodes[{number}]", catalogue)
        nodes.extend(made)
        of_entries[str(entry["name"])] = tuple(node.name for node in made)
        if len(nodes) > MAX_NODES:
            raise InputError(f"{place}: nodes", f"at most {MAX_NODES} nodes are supported")
    for name, times in Counter(node.name for node in nodes).items():
        if times > 1:
            raise InputError(f"{place}: nodes", f"{times} nodes are called {quoted(name)}; names must differ")
    failures = _failures(top.get("failures"), f"{place}: failures", of_entries)
    return ClusterSpec(tuple(nodes), _costs(top.get("costs"), f"{place}: costs"), failures)


def _nodes(entry: object, place: str, catalogue: Catalogue) -> list[NodeSpec]:
    fields = mapping_of(entry, place, _NODE_FIELDS)
    name = fields.get("name")
    if not isinstance(name, str) or not name[:1].isalnum() or not all(c.isalnum() or c in "-." for c in name):
        raise InputError(
            f"{place}.name", f"must be letters, digits, '-' and '.', a letter or digit first, not {shown(name)}"
        )
    count = whole_of(fields, "count", place, default=1, least=1, most=MAX_NODES)
    gpus = whole_of(fields, "gpus", place, default=0, least=0, most=MAX_GPUS_PER_NODE)
    cpu_milli = round(number_of(fields, "cpus", place, default=None, above=0) * 1000)
    if not cpu_milli:
        raise InputError(f"{place}.cpus", f"must be at least 0.001, not {shown(fields['cpus'])}")
    memory_bytes = round(number_of(fields, "memory_gib", place, default=0.0) * GIB)
    labels = _labels(fields.get("labels"), f"{place}.labels")
    gpu_type, gpu_memory = _gpu(fields, gpus, place, catalogue)
    sharing = fields.get("sharing", EXCLUSIVE.name)
    if sharing not in MODES:
        raise UnknownNameError(f"{place}.sharing", "way to share a GPU", str(sharing), MODES)
    replicas = whole_of(fields, "replicas", place, default=0, least=0, most=MAX_REPLICAS)
    if replicas and sharing == EXCLUSIVE.name:
        raise InputError(
            f"{place}.replicas", "is given, but nothing is shared: say how with sharing, or leave replicas out"
        )
    mig = _mig(fields, sharing, place)
    domain_gpus = _domain_gpus(fields, gpus, gpu_type, place, catalogue)
    built = []
    for index in range(1, count + 1):
        full = name if count == 1 else f"{name}-{index}"
        devices = tuple(Device(full, i, gpu_type, gpu_memory) for i in range(gpus))
        if mig:
            devices = tuple(d for gpu in devices for d in instances(gpu, gpus, mig, f"{place}.mig"))
        resources = _resources(fields, devices, gpus, place)
        first = index - (index - 1) % max(1, domain_gpus // gpus if gpus else 1)
        domains = nvlink_domains(full, gpus, domain_gpus, name if count == 1 else f"{name}-{first}")
        built.append(NodeSpec(full, cpu_milli, memory_bytes, devices, labels, sharing, replicas, resources, domains))
    return built


def _domain_gpus(fields: Mapping[str, Any], gpus: int, gpu_type: str, place: str, catalogue: Catalogue) -> int:
    """How many GPUs NVLink joins, of nodes with `gpus` each; 0: those of each node."""
    if "nvlink_domain" not in fields:
        return 0
    size = whole_of(fields, "nvlink_domain", place, default=0, least=1, most=MAX_NODES * MAX_GPUS_PER_NODE)
    place = f"{place}.nvlink_domain"
    if not gpus:
        raise InputError(place, "is given, but gpus is 0: set gpus or leave nvlink_domain out")
    if size > 1 and not catalogue.specs[gpu_type].peer_link_bytes_per_s:
        raise InputError(place, f"is {size}, but {gpu_type} has no NVLink; leave it out")
    if gpus % size and size % gpus:
        raise InputError(place, f"must divide the {gpus} GPUs of a node, or be a multiple of them, not {size}")
    return 0 if size == gpus else size


def nvlink_domains(node: str, gpus: int, domain_gpus: int, first_node: str) -> dict[int, str]:
    """The NVLink domain of each GPU of a node, by its index, where NVLink joins `domain_gpus` (0: those of the node). A domain of
    several nodes is called after the first of them."""
    if not domain_gpus:
        return {}
    if domain_gpus > gpus:
        return dict.fromkeys(range(gpus), f"{first_node}/nvlink")
    return {index: f"{node}/nvlink-{index // domain_gpus}" for index in range(gpus)}


def _resources(fields: Mapping[str, Any], devices: Sequence[Device], gpus: int, place: str) -> tuple[HostResource, ...]:
    """What the node's jobs share beside devices. What isn't stated each job has for itself."""
    pools = [HostResource(name, _speed(fields, name, place)) for name in (STORAGE, NETWORK) if name in fields]
    links = fields.get("links", [])
    if not isinstance(links, list):
        raise InputError(f"{place}.links", "must be a list of links, such as [{gpus: [0, 1]}]")
    behind: list[int] = []
    for number, entry in enumerate(links):
        where = f"{place}.links[{number}]"
        link = mapping_of(entry, where, ("gpus", "speed"))
        indexes = link.get("gpus")
        if not isinstance(indexes, list) or not indexes or not all(type(i) is int and 0 <= i < gpus for i in indexes):
            raise InputError(
                f"{where}.gpus", f"must be a list of numbers of GPUs (0 to {gpus - 1}), not {shown(indexes)}"
            )
        behind += indexes
        if len(set(behind)) < len(behind):
            raise InputError(f"{where}.gpus", "a GPU is behind one link; each must be named once")
        uuids = tuple(device.uuid for device in devices if device.gpu_index in indexes)
        pools.append(link_resource(number, _speed(link, "speed", where) if "speed" in link else 1.0, uuids))
    return tuple(pools)


def _speed(fields: Mapping[str, Any], name: str, place: str) -> float:
    speed = number_of(fields, name, place, default=None, above=0)
    if not LEAST_SPEED <= speed <= MOST_SPEED:
        raise InputError(f"{place}.{name}", f"must be from {LEAST_SPEED:g} to {MOST_SPEED:g}, not {speed:g}")
    return speed


def _mig(fields: Mapping[str, Any], sharing: str, place: str) -> list[str]:
    """The profiles to which each GPU is cut; none: GPUs are whole."""
    if "mig" not in fields:
        return []
    profiles = fields["mig"]
    if not isinstance(profiles, dict) or not profiles:
        raise InputError(f"{place}.mig", "must be a mapping of profiles to counts, such as {3g.20gb: 2}")
    if not fields.get("gpus"):
        raise InputError(f"{place}.mig", "is given, but gpus is 0: set gpus or leave mig out")
    if sharing != EXCLUSIVE.name:
        raise InputError(f"{place}.mig", f"instances have one job each; leave mig or sharing ({sharing}) out")
    counts = {str(name): whole_of(profiles, name, f"{place}.mig", default=0, least=1, most=7) for name in profiles}
    return [name for name, count in counts.items() for _ in range(count)]


def _gpu(fields: Mapping[str, Any], gpus: int, place: str, catalogue: Catalogue) -> tuple[str, int]:
    if gpus == 0:
        for name in ("gpu_type", "gpu_memory_gib"):
            if name in fields:
                raise InputError(f"{place}.{name}", f"is given, but gpus is 0: set gpus or leave {name} out")
        return "", 0
    if "gpu_type" not in fields:
        raise InputError(f"{place}.gpu_type", f"is missing, but gpus is {gpus}: name a type (see `emugpu gpus`)")
    spec = catalogue.spec(str(fields["gpu_type"]), f"{place}.gpu_type")
    whole, profile = profile_of(spec.gpu_type)
    if profile is not None:
        problem = f"is a MIG instance; give gpu_type: {whole} and mig: {{{profile.name}: ...}}"
        raise InputError(f"{place}.gpu_type", problem)
    if "gpu_memory_gib" in fields:
        return spec.gpu_type, round(number_of(fields, "gpu_memory_gib", place, default=None, above=0) * GIB)
    return spec.gpu_type, spec.memory_bytes


def _costs(document: object, place: str) -> ClusterCosts:
    if document is None:
        return ClusterCosts()
    fields = mapping_of(document, place, COST_NAMES)
    costs = ClusterCosts(**{name: number_of(fields, name, place, default=0.0) for name in fields})
    if problem := costs.problem():
        name, text = problem
        raise InputError(f"{place}.{name}", text)
    return costs


def _failures(document: object, place: str, of_entries: Mapping[str, tuple[str, ...]]) -> Failures | None:
    """`of_entries`: the names of the nodes of each entry of `nodes`."""
    if document is None:
        return None
    fields = mapping_of(document, place, ("checkpoint_every_s", "outages", "random"))
    outages = [
        _outage(entry, f"{place}.outages[{number}]") for number, entry in enumerate(list_of(fields, "outages", place))
    ]
    random = [
        _random(entry, f"{place}.random[{number}]", of_entries)
        for number, entry in enumerate(list_of(fields, "random", place))
    ]
    every_s = number_of(fields, "checkpoint_every_s", place, default=0.0)
    failures = Failures(every_s, tuple(outages), tuple(random))
    if problem := problem_of(failures, [name for names in of_entries.values() for name in names]):
        raise InputError(f"{place}.{problem[0]}", problem[1])
    return failures


def _outage(entry: object, place: str) -> Outage:
    fields = mapping_of(entry, place, ("node", "at_s", "down_s", "notice_s"))
    at_s, down_s = (number_of(fields, name, place, default=None, above=0) for name in ("at_s", "down_s"))
    notice_s = number_of(fields, "notice_s", place, default=0.0)
    if notice_s > at_s:
        raise InputError(f"{place}.notice_s", f"is longer than at_s ({at_s:g} s), so it would begin before the run")
    return Outage(str(fields.get("node")), at_s - notice_s, at_s, at_s + down_s)


def _random(entry: object, place: str, of_entries: Mapping[str, tuple[str, ...]]) -> RandomOutages:
    fields = mapping_of(entry, place, ("nodes", "mtbf_s", "down_s", "notice_s", "seed"))
    mtbf_s, down_s = (number_of(fields, name, place, default=None, above=0) for name in ("mtbf_s", "down_s"))
    entries = [str(fields["nodes"])] if "nodes" in fields else list(of_entries)
    for name in entries:
        if name not in of_entries:
            raise UnknownNameError(f"{place}.nodes", "entry of nodes", name, of_entries)
    names = tuple(name for entry_name in entries for name in of_entries[entry_name])
    notice_s = number_of(fields, "notice_s", place, default=0.0)
    seed = whole_of(fields, "seed", place, default=0, least=0, most=2**32)
    return RandomOutages(names, mtbf_s, down_s, notice_s, seed)


def _labels(value: object, place: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputError(place, "must be a mapping of texts")
    return {str(key): str(item) for key, item in value.items()}
