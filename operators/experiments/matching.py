"""Whether a cluster is the one that a cluster file describes: an experiment on another one would prove nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.units import GIB
from emulator_runtime.profiles.catalogue import bundled_catalogue
from scheduler_sims.inputs.cluster_file import ClusterSpec, NodeSpec

_Shape = tuple[tuple[tuple[str, int], ...], int]
"""Type and memory of each device, and CPUs in thousandths."""


def match(wanted: ClusterSpec, there: ClusterSpec, place: str) -> dict[str, str]:
    """Each node of the file and the node of the cluster that is like it, in the file's order.

    Nodes are alike with the same GPUs and CPUs, and the same memory where the file says how much (0: it doesn't matter).
    Raises InputError at `place` that shows both, and the command that makes such a cluster.
    """
    free = list(there.nodes)
    names: dict[str, str] = {}
    for node in sorted(wanted.nodes, key=lambda node: not node.memory_bytes):  # who doesn't mind gets what is left
        found = next((other for other in free if _alike(node, other)), None)
        if found is None:
            break
        free.remove(found)
        names[node.name] = found.name
    if free or len(names) < len(wanted.nodes):
        raise InputError(
            place,
            f"describes {_described(wanted.nodes)}; the cluster's pools have {_described(there.nodes)}; {_fix(wanted.nodes)}",
        )
    return {node.name: names[node.name] for node in wanted.nodes}


def _alike(node: NodeSpec, other: NodeSpec) -> bool:
    return _shape(node) == _shape(other) and node.memory_bytes in (0, other.memory_bytes)


def _shape(node: NodeSpec) -> _Shape:
    return tuple((device.gpu_type, device.memory_bytes) for device in node.devices), node.cpu_milli


def _described(nodes: Sequence[NodeSpec]) -> str:
    counts = Counter(_words(node) for node in nodes)
    return " and ".join(f"{count} nodes with {words}" for words, count in counts.items()) or "no node"


def _words(node: NodeSpec) -> str:
    types = Counter(device.gpu_type for device in node.devices)
    gpus = [f"{count} {gpu_type}" for gpu_type, count in types.items()] or ["no GPU"]
    memory = [f"{node.memory_bytes / GIB:g} GiB"] if node.memory_bytes else []
    return ", ".join([*gpus, f"{node.cpu_milli / 1000:g} CPUs", *memory])


def _fix(nodes: Sequence[NodeSpec]) -> str:
    """The command for a cluster of these nodes, where one command can make it."""
    cpus, memory = ({getattr(node, name) for node in nodes} for name in ("cpu_milli", "memory_bytes"))
    odd = any(len({device.gpu_type for device in node.devices}) > 1 for node in nodes)
    if len(cpus) > 1 or len(memory) > 1 or odd:
        return "give the pools these GPUs (spec.gpus), CPUs and memory (spec.emulated): kubectl edit emugpupools"
    groups = Counter((len(node.devices), node.gpu_type) for node in nodes if node.gpu_type)
    gpus = [f"--node-gpus {count}x{each}x{_short(gpu_type)}" for (each, gpu_type), count in groups.items()]
    without = sum(not node.devices for node in nodes)
    options = [*gpus, *([f"--cpu-nodes {without}"] if without else []), f"--emulated-cpus {cpus.pop() / 1000:g}"]
    least = memory.pop()
    return f"`emugpu cluster up {' '.join([*options, *_memory(least)])}` makes such a cluster"


def _memory(memory_bytes: int) -> Iterable[str]:
    return [f"--emulated-memory {memory_bytes / GIB:g}Gi"] if memory_bytes else []


def _short(gpu_type: str) -> str:
    return min((gpu_type, *bundled_catalogue().short_names(gpu_type)), key=len)
