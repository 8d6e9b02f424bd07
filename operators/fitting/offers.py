"""What the nodes of the pools offer, and whether a job could ever run there, so that a job that can't is rejected at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from emulator_runtime.domain.errors import BeyondProfileError, EmuGpuError, InputError
from emulator_runtime.domain.json_document import Field
from emulator_runtime.domain.units import gib
from emulator_runtime.node.layout import GPU_RESOURCE
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.workloads.step_costs.request import Layout, TrainRequest, batch_per_gpu, plan_step
from operators.objects.emujob import Configuration, EmuJobSpec
from operators.objects.node import Node
from operators.objects.pool import Pool
from operators.pools.emulated_nodes import emulated_nodes


@dataclass(frozen=True, slots=True)
class NodeOffer:
    """A node of a pool. `devices`: GPU type and usable memory of each that pods can ask for, shared ones as often as shared."""

    node: str
    cpu_milli: int
    memory_bytes: int
    devices: tuple[tuple[str, int], ...]


def offers_of(pools: Iterable[Pool], nodes: Sequence[Node]) -> tuple[NodeOffer, ...]:
    """All nodes of all pools, by name. Devices count whether healthy or not: they may recover."""
    return tuple(
        NodeOffer(
            each.name,
            each.cpu_milli,
            each.memory_bytes,
            tuple((entry.device.gpu_type, entry.device.usable_memory_bytes) for entry in each.shares),
        )
        for each in emulated_nodes(pools, nodes)
    )


@dataclass(frozen=True, slots=True)
class Fit:
    """The first configuration that could run somewhere, else why none can. `gpu_types`: on which types; empty: any.

    `misstated`: the specification of the work is wrong; no node could run it.
    """

    configuration: Configuration | None
    gpu_types: tuple[str, ...] = ()
    problem: str = ""
    misstated: bool = False


def profiles_of(spec: EmuJobSpec, profiles: ProfileTable) -> ProfileTable:
    """`profiles` with those that the job brings. Raises InputError with the place of a mistake in them."""
    if not spec.profiles:
        return profiles
    return profiles.with_models(Field("", "spec.profiles", spec.own_profiles))


def first_fit(spec: EmuJobSpec, offers: Sequence[NodeOffer], profiles: ProfileTable) -> Fit:
    """Pure. Considers what the nodes have, not what is free at present."""
    try:
        profiles = profiles_of(spec, profiles)
    except InputError as error:
        return Fit(None, problem=str(error), misstated=True)
    problems, misstated = [], True
    for configuration in spec.configurations:
        problem = _misstated(spec, configuration, profiles)
        misstated &= bool(problem)
        types: Mapping[str, int] = {}
        if not problem:
            types, problem = _types_of(spec, configuration, offers, profiles)
        if not problem:
            problem = _problem(spec, configuration, types, offers)
        if not problem:
            return Fit(configuration, tuple(sorted(types)) if configuration.model or configuration.gpu_types else ())
        problems.append(problem if len(spec.configurations) == 1 else f"{configuration.name}: {problem}")
    return Fit(None, problem="; ".join(problems), misstated=misstated)


def usable_types(
    spec: EmuJobSpec, configuration: Configuration, offers: Sequence[NodeOffer], profiles: ProfileTable
) -> tuple[Mapping[str, int], str]:
    """The offered GPU types on which the configuration runs, with the memory that it needs of each device; else why none."""
    try:
        profiles = profiles_of(spec, profiles)
    except InputError as error:
        return {}, str(error)
    problem = _misstated(spec, configuration, profiles)
    return ({}, problem) if problem else _types_of(spec, configuration, offers, profiles)


def _types_of(
    spec: EmuJobSpec, configuration: Configuration, offers: Sequence[NodeOffer], profiles: ProfileTable
) -> tuple[Mapping[str, int], str]:
    """As usable_types, for a configuration whose specification is right."""
    if not configuration.gpus:
        return {}, ""
    offered = {gpu_type for offer in offers for gpu_type, _ in offer.devices}
    if not offered:
        return {}, f"no pool offers {GPU_RESOURCE}; apply an EmuGPUPool"
    wanted = offered & set(configuration.gpu_types) if configuration.gpu_types else offered
    if not wanted:
        return {}, f"needs {' or '.join(configuration.gpu_types)}; the pools offer {', '.join(sorted(offered))}"
    types: dict[str, int] = {}
    problem = ""
    for gpu_type in sorted(wanted):
        try:
            types[gpu_type] = _memory_needed(spec, configuration, gpu_type, profiles)
        except BeyondProfileError as error:
            gpus = next(
                each for each in _extremes(spec, configuration) if _part(configuration, each) == error.batch_size
            )
            limits = _beyond(error.what, (error.first, error.last), configuration, gpus)
            problem = f"{limits}, or apply a pool of a GPU type that was measured further"
        except EmuGpuError as error:
            problem = str(error)
    return (types, "") if types else ({}, problem)


def _misstated(spec: EmuJobSpec, configuration: Configuration, profiles: ProfileTable) -> str:
    """The mistake in a model or its batch size, on any GPU; empty: none."""
    model = configuration.model
    if not model or not configuration.gpus:
        return ""
    try:
        known = profiles.gpu_types_of(model)
        batch_per_gpu(configuration.batch_size, configuration.gpus * spec.nodes, "batchSize")
    except InputError as error:
        return str(error)
    if (most := _extremes(spec, configuration)[-1]) > configuration.batch_size:
        samples = configuration.batch_size
        return (
            f"maxEmuGPU: a step has {samples} samples (batchSize), so at most {samples} GPUs can have one, not {most}"
        )
    ranges = [_measured(model, gpu_type, profiles) for gpu_type in configuration.gpu_types or known]
    measured = [found for found in ranges if found is not None]
    for gpus in _extremes(spec, configuration):
        batch = _part(configuration, gpus)
        if measured and not any(first <= batch <= last for first, last in measured):
            what = f"{model} on {' or '.join(configuration.gpu_types)}" if configuration.gpu_types else model
            return _beyond(what, (min(measured)[0], max(last for _, last in measured)), configuration, gpus)
    return ""


def _measured(model: str, gpu_type: str, profiles: ProfileTable) -> tuple[int, int] | None:
    """The smallest and the largest measured batch size on a GPU of this type; None: the model wasn't measured on it."""
    try:
        return profiles.measured_batches(model, gpu_type)
    except InputError:
        return None


def _extremes(spec: EmuJobSpec, configuration: Configuration) -> tuple[int, ...]:
    """The fewest and the most GPUs of the whole job; one number unless it is elastic."""
    each = dict.fromkeys((configuration.gpu_range.start, configuration.gpu_range[-1]))
    return tuple(gpus * spec.nodes for gpus in each)


def _part(configuration: Configuration, gpus: int) -> int:
    """The samples of one step on the GPU that has most of them."""
    return -(-configuration.batch_size // gpus)


def _beyond(what: str, measured: tuple[int, int], configuration: Configuration, gpus: int) -> str:
    """The message for a batch size outside of the measured range. An EmuJob's batchSize is that of all its GPUs together."""
    first, last = measured
    batch = _part(configuration, gpus)
    measurement = f"{what} was measured at batch sizes {first} to {last} on a GPU, not at {batch}"
    return f"batchSize: {measurement}; give {first * gpus} to {last * gpus} for {gpus} GPU{'s' * (gpus > 1)}"


def _memory_needed(spec: EmuJobSpec, configuration: Configuration, gpu_type: str, profiles: ProfileTable) -> int:
    if not configuration.model:
        return configuration.gpu_memory_bytes
    samples = spec.length if spec.elastic else 0
    request = TrainRequest(spec.steps, model=configuration.model, batch_size=configuration.batch_size, samples=samples)
    layouts = (Layout((gpu_type,) * (gpus // spec.nodes), gpus, spec.nodes) for gpus in _extremes(spec, configuration))
    return max(plan_step(request, layout, profiles).peak_bytes for layout in layouts)


def _problem(
    spec: EmuJobSpec, configuration: Configuration, types: Mapping[str, int], offers: Sequence[NodeOffer]
) -> str:
    """Why there are not enough nodes; empty: there are enough."""
    kinds = Counter((offer.cpu_milli, offer.memory_bytes, offer.devices) for offer in offers)
    lacks = {kind: _lacks(configuration, types, NodeOffer("", *kind)) for kind in kinds}  # nodes of a pool are alike
    enough = sum(count for kind, count in kinds.items() if not lacks[kind])
    if enough >= spec.nodes:
        return ""
    if enough:
        return f"needs {spec.nodes} nodes, only {enough} are large enough"
    if not offers:
        return "no pool has a node"
    return "; ".join(sorted(set(lacks.values()))[:2])


def _lacks(configuration: Configuration, types: Mapping[str, int], offer: NodeOffer) -> str:
    of_type = [memory for gpu_type, memory in offer.devices if gpu_type in types]
    usable = sum(memory >= types[gpu_type] for gpu_type, memory in offer.devices if gpu_type in types)
    if usable < configuration.gpus:
        if len(of_type) >= configuration.gpus:
            return f"needs {gib(min(types.values()))} of memory on each GPU, the largest has {gib(max(of_type))} usable"
        return f"needs {configuration.gpus} GPUs on a node, a node has {len(of_type)} that will do"
    if offer.cpu_milli < configuration.cpu_milli:
        return f"needs {configuration.cpu_milli / 1000:g} CPUs on a node, a node has {offer.cpu_milli / 1000:g}"
    if offer.memory_bytes < configuration.memory_bytes:
        return f"needs {gib(configuration.memory_bytes)} on a node, a node has {gib(offer.memory_bytes)}"
    return ""
