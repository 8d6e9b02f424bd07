"""The specification of a pool as types: aliases are resolved and quantities are bytes, so that nothing behind it parses.

The API server has checked the schema already; this is the second gate, for what a schema can't know (GPU types) and for
objects that were stored under an older schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from emulator_runtime.domain.errors import UnknownNameError
from emulator_runtime.domain.gpu import GpuSpec
from emulator_runtime.node.fields import Field, required
from emulator_runtime.node.inventory import Compat, is_resource_name
from emulator_runtime.node.layout import HOST_RESOURCE as HOST_RESOURCE
from emulator_runtime.profiles.catalogue import bundled_catalogue
from operators.objects.quantities import parse_quantity
from operators.objects.selector import Selector, parse_selector

DEFAULT_RESOURCE = "emugpu.dev/emuGPU"
"""What pods ask for to get a GPU; HOST_RESOURCE (imported for all who look here) is what those ask for that need none."""
_MOST_PER_GROUP = 64
_FIELDS = ("nodeSelector", "gpus", "resourceName", "sharing", "compat", "unhealthy", "emulated")


@dataclass(frozen=True, slots=True)
class GpuGroup:
    """`count` equal devices of each node. `link_group_size` devices have fast links to each other (1: none has)."""

    gpu: GpuSpec
    count: int
    memory_bytes: int
    link_group_size: int
    numa_nodes: int
    resource: str


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """What a pool gives each of its nodes; without `groups` no GPUs. `unhealthy`: reason by (node, device index).

    `cpu_milli`, `memory_bytes`: what each node pretends to have for jobs to divide; None: what it really has.
    """

    selector: Selector
    groups: tuple[GpuGroup, ...]
    sharing: Mapping[str, object]
    compat: Compat
    nvidia_labels: bool
    unhealthy: Mapping[tuple[str, int], str]
    cpu_milli: int | None = None
    memory_bytes: int | None = None


def parse_spec(pool: str, spec: object) -> PoolSpec:
    """Raises InputError naming pool and field; UnknownNameError at spec.gpus[i].type is a GPU type that isn't known."""
    document = Field(f"EmuGPUPool {pool}", "spec", spec)
    members = document.members(_FIELDS)
    resource = _resource_name(members["resourceName"]) if "resourceName" in members else DEFAULT_RESOURCE
    emulated = members["emulated"].members(("cpu", "memory")) if "emulated" in members else {}
    groups = tuple(_group(element, resource) for element in members["gpus"].elements()) if "gpus" in members else ()
    if not groups and not emulated:
        raise document.error("gpus must name at least one GPU type; a pool without GPUs needs emulated.cpu or .memory")
    nvidia_labels, compat = _compat(members["compat"]) if "compat" in members else (False, Compat())
    sharing = members.get("sharing")
    if sharing is not None and not isinstance(sharing.value, dict):
        raise sharing.error("must be an object with timeSlicing")
    return PoolSpec(
        selector=parse_selector(members["nodeSelector"]) if "nodeSelector" in members else Selector(),
        groups=groups,
        sharing=sharing.value if sharing is not None and isinstance(sharing.value, dict) else {},
        compat=compat,
        nvidia_labels=nvidia_labels,
        unhealthy=dict(_unhealthy(f) for f in members["unhealthy"].elements()) if "unhealthy" in members else {},
        cpu_milli=_cpu_milli(emulated["cpu"]) if "cpu" in emulated else None,
        memory_bytes=_memory_bytes(emulated["memory"]) if "memory" in emulated else None,
    )


def _group(document: Field, resource: str) -> GpuGroup:
    members = document.members(("type", "count", "memory", "linkGroupSize", "numaNodes", "resourceName"))
    wanted = required(members, "type", document)
    gpu = named_spec(wanted)
    count = required(members, "count", document).whole(least=1, most=_MOST_PER_GROUP)
    linked = count if gpu.peer_link_bytes_per_s > 0 else 1
    return GpuGroup(
        gpu=gpu,
        count=count,
        memory_bytes=_memory_bytes(members["memory"]) if "memory" in members else gpu.memory_bytes,
        link_group_size=members["linkGroupSize"].whole(least=1, most=count) if "linkGroupSize" in members else linked,
        numa_nodes=members["numaNodes"].whole(least=1, most=count) if "numaNodes" in members else 1,
        resource=_resource_name(members["resourceName"]) if "resourceName" in members else resource,
    )


def named_spec(document: Field) -> GpuSpec:
    """A GPU type by name or alias; the error offers both, because people type the short ones."""
    catalogue = bundled_catalogue()
    name = catalogue.find(document.text())
    if name is None:
        known = [
            *catalogue.specs,
            *(short for gpu_type in catalogue.specs for short in catalogue.short_names(gpu_type)),
        ]
        raise UnknownNameError(f"{document.place}: {document.path}", "GPU type", document.text(), known)
    return catalogue.specs[name]


def _memory_bytes(document: Field) -> int:
    text = str(document.value) if type(document.value) is int else document.text()
    amount = parse_quantity(text, f"{document.place}: {document.path}")
    if amount < 1:
        raise document.error(f"must be at least one byte, got {text}")
    return int(amount)


def _cpu_milli(document: Field) -> int:
    text = str(document.value) if type(document.value) in (int, float) else document.text()
    amount = parse_quantity(text, f"{document.place}: {document.path}") * 1000
    if amount < 1:
        raise document.error(f"must be at least one thousandth of a CPU, got {text}")
    return int(amount)


def _resource_name(document: Field) -> str:
    name = document.text()
    if name == HOST_RESOURCE:
        raise document.error(f"{name} is a place on a node, no GPU; write another name, such as {DEFAULT_RESOURCE}")
    if not is_resource_name(name):
        raise document.error(
            f"{name!r} is no name of an extended resource; write one with a domain, such as {DEFAULT_RESOURCE}"
        )
    return name


def _compat(document: Field) -> tuple[bool, Compat]:
    members = document.members(("nvidiaLabels", "nvidiaEnv"))
    labels, env = (name in members and members[name].flag() for name in ("nvidiaLabels", "nvidiaEnv"))
    return labels, Compat(nvidia_env=env)


def _unhealthy(document: Field) -> tuple[tuple[str, int], str]:
    members = document.members(("node", "index", "reason"))
    key = required(members, "node", document).text(), required(members, "index", document).whole()
    return key, members["reason"].text() if "reason" in members else "marked unhealthy in the pool"
