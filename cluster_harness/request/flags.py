"""Parses the flags of `emugpu cluster up` into a specification; an error names the flag that is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cluster_harness.request.spec import ClusterSpec, PoolSpec, parse_name
from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.mig import profile_of
from emulator_runtime.profiles.catalogue import gpu_spec
from operators.kube.quantities import parse_quantity

MAX_NODES = 64
"""A bound against typing errors: each node is a container with a kubelet and a containerd on this machine."""

MAX_GPUS_PER_NODE = 64
DEFAULT_NODES = 2
DEFAULT_GPUS = 8
DEFAULT_GPU_TYPE = "A100-SXM4-80GB"
CPU_POOL = "cpu"
CPUS_PER_GPU = 8
MEMORY_GIB_PER_GPU = 64
"""What a node emulates for each of its GPUs unless a flag says otherwise: half of what a DGX A100 has (NVIDIA's data sheet:
128 cores and 1 TB for 8 GPUs)."""

REAL = "real"
"""Value of --emulated-cpus and --emulated-memory: nodes keep the CPUs and memory of the machine."""

_POOL = re.compile(r"(?P<name>[^=]+)=(?P<gpus>\d+)x(?P<type>[^:]+):(?P<nodes>\d+)")
_NODE_GPUS = re.compile(r"(?P<nodes>\d+)x(?P<gpus>\d+)x(?P<type>.+)")


def plan(
    name: str,
    *,
    nodes: int | None = None,
    gpus: int | None = None,
    gpu_type: str | None = None,
    pools: Iterable[str] = (),
    node_gpus: Iterable[str] = (),
    cpu_nodes: int = 0,
) -> ClusterSpec:
    """The specification that the flags describe, without emulated resources.

    `nodes` None: 2 unless another flag adds nodes. `gpus` and `gpu_type` are about these nodes; None: the defaults.
    Raises InputError that names the wrong flag.
    """
    requested = [_of_pool(text) for text in pools]
    requested += [_of_node_gpus(text, number) for number, text in enumerate(node_gpus, start=1)]
    if nodes is None:
        nodes = 0 if requested or cpu_nodes else DEFAULT_NODES
    _count("--nodes", nodes, least=0)
    _count("--cpu-nodes", cpu_nodes, least=0)
    if nodes:
        requested.append(_RequestedPool("--nodes", _of_nodes(nodes, gpus, gpu_type)))
    elif gpus is not None or gpu_type is not None:
        flag = "--gpus" if gpus is not None else "--gpu-type"
        raise InputError(
            flag, "describes the nodes of --nodes, of which there are none; give their number with --nodes"
        )
    if cpu_nodes:
        requested.append(_RequestedPool("--cpu-nodes", PoolSpec(CPU_POOL, cpu_nodes, 0, "")))
    _check_names(requested)
    spec = ClusterSpec(parse_name(name), tuple(one.pool for one in requested))
    if not 1 <= spec.workers <= MAX_NODES:
        flags = ", ".join(dict.fromkeys(one.flag.partition(" ")[0] for one in requested)) or "--nodes"
        raise InputError(flags, f"a cluster has from 1 to {MAX_NODES} worker nodes, not {spec.workers}")
    return spec


def with_emulated_resources(spec: ClusterSpec, cpus: str, memory: str) -> ClusterSpec:
    """The specification with the CPUs and memory that each node emulates.

    `cpus` and `memory` are Kubernetes quantities for every node, REAL for what the machine itself has, or empty for the
    default: a node with GPUs emulates CPUS_PER_GPU and MEMORY_GIB_PER_GPU for each of them, a node without GPUs keeps its
    own. Example: 8 GPUs without flags make 64 CPUs and 512Gi. Raises InputError that names the wrong flag.
    """
    cpu, byte = (1000, "24"), (1, "500Gi")  # Kubernetes counts thousandths of a CPU, and bytes, with 63 bits
    for flag, amount, (unit, example) in (("--emulated-cpus", cpus, cpu), ("--emulated-memory", memory, byte)):
        if amount not in ("", REAL) and not 1 <= parse_quantity(amount, flag) * unit < 2**63:
            what = f"above 0 that Kubernetes can count, such as {example}, or {REAL}"
            raise InputError(flag, f"must be a quantity {what}, not {amount}")
    return replace(spec, pools=tuple(_emulating(pool, cpus, memory) for pool in spec.pools))


def _emulating(pool: PoolSpec, cpus: str, memory: str) -> PoolSpec:
    default_cpus = f"{CPUS_PER_GPU * pool.gpus}" if pool.gpus else REAL
    default_memory = f"{MEMORY_GIB_PER_GPU * pool.gpus}Gi" if pool.gpus else REAL
    cpus, memory = cpus or default_cpus, memory or default_memory
    return replace(pool, emulated_cpus="" if cpus == REAL else cpus, emulated_memory="" if memory == REAL else memory)


@dataclass(frozen=True)
class _RequestedPool:
    """A pool and the flag that describes it, with the flag's value if it may be repeated."""

    flag: str
    pool: PoolSpec


def _of_pool(text: str) -> _RequestedPool:
    match = _matched(_POOL, "--pool", text, "NAME=4xV100:2 (2 nodes with 4 V100 each)")
    flag = f"--pool {text}"
    name = parse_name(match["name"], flag)
    return _RequestedPool(flag, _pool(flag, name, int(match["nodes"]), int(match["gpus"]), match["type"]))


def _of_node_gpus(text: str, number: int) -> _RequestedPool:
    match = _matched(_NODE_GPUS, "--node-gpus", text, "4x1xV100 (4 nodes with 1 V100 each)")
    flag = f"--node-gpus {text}"
    return _RequestedPool(flag, _pool(flag, f"gpus-{number}", int(match["nodes"]), int(match["gpus"]), match["type"]))


def _pool(flag: str, name: str, nodes: int, gpus: int, gpu_type: str) -> PoolSpec:
    return PoolSpec(name, _count(flag, nodes, least=1), _gpus(flag, gpus), _gpu_type(gpu_type, flag))


def _of_nodes(nodes: int, gpus: int | None, gpu_type: str | None) -> PoolSpec:
    gpu = _gpu_type(DEFAULT_GPU_TYPE if gpu_type is None else gpu_type, "--gpu-type")
    return PoolSpec("default", nodes, _gpus("--gpus", DEFAULT_GPUS if gpus is None else gpus), gpu)


def _gpu_type(name: str, flag: str) -> str:
    gpu_type = gpu_spec(name, flag).gpu_type
    if profile_of(gpu_type)[1] is not None:
        raise InputError(
            flag, f"{name} is a MIG instance; name the whole GPU's type, and cut it with spec.mig of its EmuGPUPool"
        )
    return gpu_type


def _count(flag: str, nodes: int, *, least: int) -> int:
    if not least <= nodes <= MAX_NODES:
        raise InputError(flag, f"must be from {least} to {MAX_NODES} nodes, not {nodes}")
    return nodes


def _gpus(flag: str, gpus: int) -> int:
    if not 1 <= gpus <= MAX_GPUS_PER_NODE:
        raise InputError(flag, f"a node has from 1 to {MAX_GPUS_PER_NODE} GPUs, not {gpus} (see also --cpu-nodes)")
    return gpus


def _check_names(requested: Sequence[_RequestedPool]) -> None:
    """Users choose names only in --pool, whose pools come first, so the error names that flag."""
    flags: dict[str, str] = {}
    for one in requested:
        if first := flags.get(one.pool.name):
            raise InputError(first, f"{one.flag} makes a pool {one.pool.name!r} too; choose another name for this one")
        flags[one.pool.name] = one.flag


def _matched(pattern: re.Pattern[str], flag: str, text: str, form: str) -> Mapping[str, str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise InputError(flag, f"{text!r} is not of the form {form}")
    return match.groupdict()
