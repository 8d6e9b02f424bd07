"""Applies a sharing configuration file of NVIDIA's device plugin, so that users can bring the file that they have.

    version: v1
    sharing:
      timeSlicing:            # or mps
        renameByDefault: false
        failRequestsGreaterThanOne: false
        resources: [{name: nvidia.com/gpu, rename: nvidia.com/gpu.shared, devices: all, replicas: 4}]
      mode: fair              # one of emugpu's own ways to share, instead of the section's
      longestUnit: 10s        # the longest step for which other holders may have to wait

The fields are defined in NVIDIA/k8s-device-plugin, README "Shared Access to GPUs" and api/config/v1/replicas.go. Three
differences: `rename` and `devices`, which that plugin ignores, work here; `nvidia.com/gpu` means the pool's resources;
`mode` and `longestUnit` are emugpu's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from emulator_runtime.domain.errors import UnknownNameError
from emulator_runtime.domain.json_document import Field
from emulator_runtime.domain.units import MAX_UNIT_NS, POOL_UNIT_NS, read_duration_ns, to_s
from emulator_runtime.node.inventory import (
    EXCLUSIVE,
    MAX_REPLICAS,
    SHARING_MODES,
    DeviceEntry,
    Inventory,
    ResourceEntry,
    is_mig_resource,
    is_resource_name,
    repeated,
)

SHARED_SUFFIX = ".shared"
NVIDIA_PREFIX = "nvidia.com/"
NVIDIA_GPU = "nvidia.com/gpu"

_FILE_FIELDS = ("version", "flags", "resources", "sharing", "imex", "health")


@dataclass(frozen=True, slots=True)
class _Slicing:
    """One entry of `resources`: name, new name ("" keeps the name), which devices, and how many holders share each."""

    where: Field
    name: str
    rename: str
    devices: Field | None
    replicas: int


_OWN = ("mode", "longestUnit")
_SECTIONS = {"timeSlicing": "time-slicing", "mps": "mps"}
"""The sections of a file, and the way to share that each stands for."""


def apply_sharing(inventory: Inventory, mapping: Mapping[str, object], place: str) -> Inventory:
    """The inventory in which the resources named by `mapping` are shared. `mapping`: a whole file, or its `sharing` section.

    NVIDIA resources that no device has (such as a MIG profile) are skipped. Raises InputError naming `place` and path,
    UnknownNameError for any other resource that isn't in the inventory.
    """
    found = _section(Field(place, "", dict(mapping)))
    if found is None:
        return inventory
    section, mode, longest_unit_ns = found
    members = section.members(("resources",), ("strategy", "renameByDefault", "failRequestsGreaterThanOne"))
    if "strategy" in members and members["strategy"].text():
        raise members["strategy"].error("must be left out: only sharing without a named strategy exists")
    rename = "renameByDefault" in members and members["renameByDefault"].flag()
    fail = "failRequestsGreaterThanOne" in members and members["failRequestsGreaterThanOne"].flag()
    elements = members["resources"].elements()
    if not elements:
        raise members["resources"].error("must name at least one resource")
    slicings = _by_resource(inventory, [_slicing(element) for element in elements])
    resources: list[ResourceEntry] = []
    for resource in inventory.resources:
        slicing = slicings.get(resource.name)
        resources += [resource] if slicing is None else _share(resource, slicing, mode, rename=rename, fail=fail)
    resources = [r if r.sharing == EXCLUSIVE else replace(r, longest_unit_ns=longest_unit_ns) for r in resources]
    if (name := repeated(resource.name for resource in resources)) is not None:
        raise members["resources"].error(f"{name} would be two resources; rename one of them to another name")
    return replace(inventory, resources=tuple(resources))


def _section(document: Field) -> tuple[Field, str, int] | None:
    """The section of a file, or of its `sharing` part, that shares devices, the name of the mode, and the longest unit; None if
    there is none."""
    assert isinstance(document.value, dict)
    sharing: Field | None = document
    if not document.value.keys() & {*_SECTIONS, *_OWN}:
        members = document.members((), _FILE_FIELDS)
        if "version" in members and members["version"].text() != "v1":
            raise members["version"].error("must be v1")
        sharing = members.get("sharing")
    if sharing is None or sharing.value is None:
        return None
    members = sharing.members((), (*_SECTIONS, *_OWN))
    sections = [name for name in _SECTIONS if name in members and members[name].value]
    if len(sections) > 1:
        raise members[sections[1]].error(f"goes not together with {sections[0]}; keep one of them")
    if not sections:
        for name in members.keys() & {*_OWN}:
            raise members[name].error("goes with timeSlicing or mps, which say which devices are shared by how many")
        return None
    (name,) = sections
    mode = _mode(members["mode"]) if "mode" in members else _SECTIONS[name]
    return members[name], mode, _longest_unit_ns(members["longestUnit"]) if "longestUnit" in members else POOL_UNIT_NS


def _longest_unit_ns(document: Field) -> int:
    unit_ns = read_duration_ns(document.text()) or 0
    if not 0 < unit_ns <= MAX_UNIT_NS:
        raise document.error(f"must be a time above 0 and up to {to_s(MAX_UNIT_NS):g}s, such as 500ms or 30s")
    return unit_ns


def _mode(document: Field) -> str:
    name = document.text()
    if name not in SHARING_MODES:
        raise UnknownNameError(f"{document.place}: {document.path}", "way to share a GPU", name, SHARING_MODES)
    return name


def _slicing(document: Field) -> _Slicing:
    members = document.members(("name", "replicas"), ("rename", "devices"))
    return _Slicing(
        where=document,
        name=_qualified(members["name"], NVIDIA_PREFIX),
        rename=_qualified(members["rename"], NVIDIA_PREFIX) if "rename" in members and members["rename"].value else "",
        devices=members.get("devices"),
        replicas=members["replicas"].whole(least=1, most=MAX_REPLICAS),
    )


def _qualified(document: Field, prefix: str) -> str:
    """A resource name; as in NVIDIA's plugin, a name without a slash gets the prefix (`gpu` is nvidia.com/gpu)."""
    name = document.text(least=1)
    name = name if "/" in name else prefix + name
    if not is_resource_name(name):
        raise document.error(f"{name!r} is no name of an extended resource, such as {NVIDIA_GPU}")
    return name


def _by_resource(inventory: Inventory, slicings: list[_Slicing]) -> dict[str, _Slicing]:
    """The entry for each resource of the inventory. An entry with the resource's own name precedes `nvidia.com/gpu`."""
    names = [resource.name for resource in inventory.resources]
    by_resource: dict[str, _Slicing] = {}
    for slicing in slicings:
        if slicing.name in by_resource:
            raise slicing.where.error(f"{slicing.name} is named twice")
        if slicing.name in names:
            by_resource[slicing.name] = slicing
        elif not slicing.name.startswith((NVIDIA_GPU, f"{NVIDIA_PREFIX}mig-")):  # one file may serve many nodes
            raise UnknownNameError(f"{slicing.where.place}: {slicing.where.path}.name", "resource", slicing.name, names)
    for slicing in slicings:
        if slicing.name == NVIDIA_GPU and NVIDIA_GPU not in names:
            by_resource |= {name: slicing for name in names if name not in by_resource and not is_mig_resource(name)}
    return by_resource


def _share(resource: ResourceEntry, slicing: _Slicing, mode: str, *, rename: bool, fail: bool) -> list[ResourceEntry]:
    """The shared resource, after the original resource if some of its devices aren't shared."""
    shared = _chosen(resource, slicing)
    whole = tuple(entry for entry in resource.devices if entry not in shared)
    default = resource.name + SHARED_SUFFIX if rename else resource.name
    name = slicing.rename or default
    if slicing.replicas > 1 and any(entry.device.mig is not None for entry in shared):
        raise slicing.where.error(f"{resource.name} has MIG instances, which have one holder each; leave it out")
    if slicing.replicas == 1:  # nothing is shared, so the default name doesn't get the suffix
        name = slicing.rename or resource.name
    if whole and name == resource.name:
        problem = f"leaves devices of {resource.name} whole under the same name; give `rename`, or `devices: all`"
        raise slicing.where.error(problem)
    entry = ResourceEntry(name, shared, slicing.replicas, fail, mode if slicing.replicas > 1 else EXCLUSIVE)
    return [replace(resource, devices=whole), entry] if whole else [entry]


def _chosen(resource: ResourceEntry, slicing: _Slicing) -> tuple[DeviceEntry, ...]:
    """The devices that `devices` selects: "all" (the default), a number (the first by index), or indexes and UUIDs."""
    wanted = slicing.devices
    if wanted is None or wanted.value in (None, "all"):
        return resource.devices
    if isinstance(wanted.value, list):
        return _listed(resource, wanted)
    if not isinstance(wanted.value, int):
        raise wanted.error('must be "all", a number of devices, or a list of indexes and UUIDs')
    count = wanted.whole(least=1, most=len(resource.devices))
    return tuple(sorted(resource.devices, key=lambda entry: entry.device.index)[:count])


def _listed(resource: ResourceEntry, wanted: Field) -> tuple[DeviceEntry, ...]:
    known: dict[str, DeviceEntry] = {}
    for entry in resource.devices:
        known[str(entry.device.index)] = known[entry.device.uuid] = entry
    chosen: list[DeviceEntry] = []
    for element in wanted.elements():
        name = str(element.whole()) if isinstance(element.value, int) else element.text()
        if name not in known:
            raise UnknownNameError(f"{element.place}: {element.path}", f"device of {resource.name}", name, known)
        if known[name] not in chosen:
            chosen.append(known[name])
    if not chosen:
        raise wanted.error("must name at least one device")
    return tuple(sorted(chosen, key=lambda entry: entry.device.index))
