"""Converts EmuJobs and the pools' nodes into the types of the schedulers and the simulator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from emulator_runtime.domain import job as domain
from emulator_runtime.domain.mig import profile_of
from emulator_runtime.domain.units import to_s
from emulator_runtime.node.inventory import EXCLUSIVE
from emulator_runtime.profiles.catalogue import bundled_catalogue
from emulator_runtime.profiles.table import ProfileTable
from operators.fitting.offers import NodeOffer, profiles_of, usable_types
from operators.objects.emujob import Configuration, EmuJobSpec
from operators.objects.node import Node
from operators.objects.pool import Pool
from operators.pools.emulated_nodes import EmulatedNode, emulated_nodes
from scheduler_sims.inputs.cluster_file import ClusterSpec, NodeSpec
from scheduler_sims.interface.costs import ClusterCosts


def job_spec(
    job_id: str, spec: EmuJobSpec, submit_s: float, row: int, offers: Sequence[NodeOffer], profiles: ProfileTable
) -> domain.JobSpec:
    """The EmuJob as submitted. A configuration that names no GPU types can use those of `offers` on which it runs.

    Configurations that no pool could run are omitted. If none could run, all are kept, and the scheduler reports that none fits.
    A job of several pods has as many tasks as `nodes`. Raises InputError for a mistake in the job's own profiles.
    """
    usable = {c.name: usable_types(spec, c, offers, profiles) for c in spec.configurations}
    table = profiles_of(spec, profiles)
    kept = [c for c in spec.configurations if not usable[c.name][1]] or list(spec.configurations)
    return domain.JobSpec(
        job_id=job_id,
        user=spec.tenant,
        submit_s=submit_s,
        steps=spec.steps,
        configurations=tuple(_configuration(c, spec.nodes, usable[c.name][0]) for c in kept),
        work={c.name: _work(c, spec, table) for c in kept},
        row=row,
        weight=spec.weight,
        program=_program(spec),
    )


def cluster_spec(pools: Iterable[Pool], nodes: Sequence[Node], costs: ClusterCosts | None = None) -> ClusterSpec:
    """All nodes of all pools by name, with their emulated amounts."""
    return cluster_of(emulated_nodes(pools, nodes), costs)


def cluster_of(nodes: Iterable[EmulatedNode], costs: ClusterCosts | None = None) -> ClusterSpec:
    """As cluster_spec, for nodes whose devices are known."""
    return ClusterSpec(tuple(map(_node, nodes)), costs or ClusterCosts())


def _node(node: EmulatedNode) -> NodeSpec:
    devices, sharing, replicas = tuple(entry.device for entry in node.gpus), node.sharing, node.replicas
    return NodeSpec(
        node.name,
        node.cpu_milli,
        node.memory_bytes,
        devices,
        sharing=sharing,
        replicas=replicas if sharing != EXCLUSIVE else 0,
        resources=node.host_resources,
        nvlink=_nvlink(node),
    )


def _nvlink(node: EmulatedNode) -> dict[int, str]:
    """The NVLink domain of each GPU; empty if all are in one, or their type has none."""
    specs = bundled_catalogue().specs
    groups = {entry.device.gpu_index: entry.link_group for entry in node.gpus}
    linked = any(specs[profile_of(entry.device.gpu_type)[0]].peer_link_bytes_per_s for entry in node.gpus)
    apart = linked and len(set(groups.values())) > 1
    return {index: f"{node.name}/nvlink-{group}" for index, group in groups.items()} if apart else {}


def _configuration(configuration: Configuration, nodes: int, types: Mapping[str, int]) -> domain.Configuration:
    memory = max(types.values(), default=0)
    limited = bool(configuration.model or configuration.gpu_types)
    best = configuration.sensitivity.best if configuration.sensitivity is not None else None
    return domain.Configuration(
        name=configuration.name,
        gpus=configuration.gpus,
        cpu_milli=configuration.cpu_milli,
        memory_bytes=configuration.memory_bytes,
        gpu_types=tuple(sorted(types)) if types and limited else None,
        device_memory_bytes=memory,
        min_tasks=nodes,
        max_tasks=nodes,
        best_cpu_milli=max(configuration.cpu_milli, best.cpu_milli) if best is not None else 0,
        best_memory_bytes=max(configuration.memory_bytes, best.memory_bytes) if best is not None else 0,
        min_gpus=configuration.gpu_range.start * nodes if configuration.elastic else 0,
        max_gpus=configuration.gpu_range[-1] * nodes if configuration.elastic else 0,
    )


def _work(configuration: Configuration, spec: EmuJobSpec, table: ProfileTable) -> domain.Work:
    model = configuration.model
    if model:
        per_gpu = max(1, configuration.batch_size // max(1, configuration.gpus * spec.nodes))
        own = table.model(model) if model in spec.profiles else None
        # GPUs exchange gradients, as with `emugpu train` in its pods.
        return domain.ModelWork(
            model,
            per_gpu,
            input_cpu_s=to_s(configuration.input_cpu_ns),
            exchanges=True,
            host_s=to_s(configuration.host_ns),
            stages=configuration.stages,
            starts=spec.program is not None,
            own=own,
        )
    return configuration.timed_work(spec.steps)


def _program(spec: EmuJobSpec) -> domain.Program | None:
    if spec.program is None:
        return None
    return domain.Program(spec.program.command, spec.program.resumes, spec.image)
