"""The cluster before an experiment: the pools' nodes, whether other pods use them, and whether it is that of the cluster file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from emulator_runtime.domain.errors import InputError
from emulator_runtime.node.inventory import EXCLUSIVE
from emulator_runtime.profiles.catalogue import bundled_catalogue
from operators.fitting.remedy import memory_option, words_of
from operators.fitting.workload import cluster_spec
from operators.kube.api import EMUJOB, NODE, POD, POOL, Api, NotThereError
from operators.objects.node import Node
from operators.objects.pod import Pod
from operators.objects.pool import Pool
from scheduler_sims.inputs.cluster_file import ClusterSpec, NodeSpec
from scheduler_sims.reports.formats import list_some

_EDIT_POOLS = (
    "give the pools these GPUs (spec.gpus), shared in this way (spec.sharing), these CPUs and memory (spec.emulated), and this "
    "storage, network and links (spec.hostResources): "
    "kubectl edit emugpupools"
)
_Shape = tuple[tuple[tuple[str, int], ...], int, str, Mapping[tuple[str, frozenset[int]], float]]
"""Type and memory of each device, CPUs in thousandths, how jobs share a device, and the speed of what they share beside: storage,
network, and links by the GPUs behind them."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """`spec`: the pools' nodes by name; `unready`: those that are not ready; `users`: pods that hold emulated devices."""

    spec: ClusterSpec
    unready: tuple[str, ...] = ()
    users: tuple[str, ...] = ()

    def check_idle(self, place: str) -> None:
        """Raises InputError at `place` if a node is not ready, or other pods use the cluster."""
        if self.unready:
            raise InputError(place, f"nodes that are not ready: {list_some(self.unready)}; wait until they are")
        if self.users:
            problem = f"{list_some(self.users)} use emulated devices; an experiment needs the cluster for itself"
            raise InputError(place, problem)


async def read_cluster_state(api: Api, place: str = "the cluster") -> ClusterState:
    """Raises InputError at `place` if emugpu is not installed, and what Api raises."""
    try:
        await api.list(EMUJOB)
        _, pools = await api.list(POOL)
    except NotThereError as error:
        raise InputError(place, "the cluster doesn't know EmuJobs; install the chart (emugpu cluster up)") from error
    _, nodes = await api.list(NODE)
    _, pods = await api.list(POD)
    facts = [Node.read(document) for document in nodes]
    spec = cluster_spec([Pool.read(document) for document in pools], facts)
    ready = {node.name for node in facts if node.ready}
    return ClusterState(
        spec,
        unready=tuple(node.name for node in spec.nodes if node.name not in ready),
        users=tuple(sorted(str(pod.key) for pod in map(Pod.read, pods) if pod.uses_emugpu and not pod.over)),
    )


# --- is it the cluster of the cluster file? ----------------------------------------------------------------------------


def match(wanted: ClusterSpec, actual: ClusterSpec, place: str) -> dict[str, str]:
    """For each node of the cluster file, in its order, a node of the cluster that is like it.

    Nodes are alike with the same GPUs, shared in the same way, the same CPUs, storage, network and links, and with the same
    memory and number of replicas where the file states them (0: any).
    Raises InputError at `place` that shows both clusters, and the command that makes the wanted one.
    """
    free = list(actual.nodes)
    names: dict[str, str] = {}
    for node in sorted(wanted.nodes, key=lambda node: not node.memory_bytes):  # nodes with any memory take what remains
        alike = next((other for other in free if _alike(node, other)), None)
        if alike is None:
            break
        free.remove(alike)
        names[node.name] = alike.name
    if free or len(names) < len(wanted.nodes):
        described = f"describes {_described(wanted.nodes)}; the cluster's pools have {_described(actual.nodes)}"
        raise InputError(place, f"{described}; {_command(wanted.nodes)}")
    return {node.name: names[node.name] for node in wanted.nodes}


def _alike(node: NodeSpec, other: NodeSpec) -> bool:
    stated = ((node.memory_bytes, other.memory_bytes), (node.replicas, other.replicas))
    return _shape(node) == _shape(other) and all(mine in (0, theirs) for mine, theirs in stated)


def _shape(node: NodeSpec) -> _Shape:
    devices = tuple((device.gpu_type, device.memory_bytes) for device in node.devices)
    indexes = {device.uuid: device.gpu_index for device in node.devices}
    resources = {
        (
            "" if each.is_link else each.name,
            frozenset(indexes[uuid] for uuid in each.devices if uuid in indexes),
        ): each.speed
        for each in node.resources
    }
    return devices, node.cpu_milli, node.sharing, resources


def _described(nodes: Sequence[NodeSpec]) -> str:
    counts = Counter(words_of(node) for node in nodes)
    return " and ".join(f"{count} nodes with {words}" for words, count in counts.items()) or "no node"


def _command(nodes: Sequence[NodeSpec]) -> str:
    """The command that makes a cluster of these nodes, where one command can."""
    cpus, memory = ({getattr(node, name) for node in nodes} for name in ("cpu_milli", "memory_bytes"))
    mixed = any(len({device.gpu_type for device in node.devices}) > 1 for node in nodes)
    if len(cpus) > 1 or len(memory) > 1 or mixed or any(node.sharing != EXCLUSIVE or node.resources for node in nodes):
        return _EDIT_POOLS
    groups = Counter((len(node.devices), node.gpu_type) for node in nodes if node.gpu_type)
    gpus = [f"--node-gpus {count}x{each}x{_short(gpu_type)}" for (each, gpu_type), count in groups.items()]
    without = sum(not node.devices for node in nodes)
    options = [*gpus, *([f"--cpu-nodes {without}"] if without else []), f"--emulated-cpus {cpus.pop() / 1000:g}"]
    return f"`emugpu cluster up {' '.join([*options, *memory_option(memory.pop())])}` makes such a cluster"


def _short(gpu_type: str) -> str:
    return min((gpu_type, *bundled_catalogue().short_names(gpu_type)), key=len)
