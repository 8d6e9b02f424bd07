"""What to change so that a job, of which no configuration fits the pools' nodes, does fit (see inputs/fit.py). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from emulator_runtime.domain.job import JobSpec
from emulator_runtime.domain.stages import HostResource
from emulator_runtime.domain.units import GIB
from emulator_runtime.node.inventory import EXCLUSIVE
from scheduler_sims.inputs.cluster_file import ClusterSpec, NodeSpec
from scheduler_sims.inputs.fit import usable_gpus


def remedy(job: JobSpec, cluster: ClusterSpec) -> str:
    """For the error about a job of which no configuration fits: the most suitable node, and what to change.

    Most suitable is the node with the most devices that the job can use, then the one with the most CPUs.
    """
    way = min(job.configurations, key=lambda c: (c.gpus, c.cpu_milli, c.memory_bytes))
    node = max(
        cluster.nodes, key=lambda n: (min(way.gpus, usable_gpus(way, n)), n.cpu_milli, n.memory_bytes), default=None
    )
    if node is None:
        return "the pools have no node; `kubectl get emugpupools` shows them"
    largest = f"the most suitable node, {node.name}, has {words_of(node)}"
    if usable_gpus(way, node) < way.gpus:
        return f"{largest}; run it with fewer GPUs, or make such nodes (`emugpu cluster up --gpus {way.gpus}`)"
    options = [f"--emulated-cpus {-(-way.cpu_milli // 1000)}"] if node.cpu_milli < way.cpu_milli else []
    options += memory_option(way.memory_bytes) if node.memory_bytes < way.memory_bytes else []
    if not options:
        return f"{largest}; use fewer nodes for the job, or give the cluster more of them"
    pool = "spec.emulated of its EmuGPUPool"
    return f"{largest}; let the job ask for less, or emulate more: `emugpu cluster up {' '.join(options)}` or {pool}"


def words_of(node: NodeSpec) -> str:
    """Such as "2 V100, 16 CPUs, 128 GiB", "1 P100 shared by mps among 4, 8 CPUs" or "4 V100, 16 CPUs, storage 1,
    link of GPUs 0+1 2"."""
    types = Counter(device.gpu_type for device in node.devices)
    among = f" among {node.replicas}" if node.replicas else ""
    shared = f" shared by {node.sharing}{among}" if node.sharing != EXCLUSIVE else ""
    gpus = [f"{count} {gpu_type}{shared}" for gpu_type, count in types.items()] or ["no GPU"]
    memory = [f"{node.memory_bytes / GIB:.4g} GiB"] if node.memory_bytes else []
    host = [f"{_resource(each, node)} {each.speed:g}" for each in node.resources]
    return ", ".join([*gpus, f"{node.cpu_milli / 1000:g} CPUs", *memory, *host])


def _resource(resource: HostResource, node: NodeSpec) -> str:
    behind = dict.fromkeys(device.gpu_index for device in node.devices if device.uuid in resource.devices)
    return f"link of GPUs {'+'.join(map(str, behind))}" if resource.is_link else resource.name


def memory_option(memory_bytes: int) -> Sequence[str]:
    """The option of `emugpu cluster up` for this much emulated memory; 0: none."""
    return [f"--emulated-memory {-(-memory_bytes // GIB)}Gi"] if memory_bytes else []
