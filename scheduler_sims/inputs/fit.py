"""Whether a job can ever run on a cluster: a pure check against the empty cluster, made before anything is started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.job import Configuration, JobSpec
from emulator_runtime.domain.mig import profile_of
from emulator_runtime.domain.parallelism import whole_multiples
from emulator_runtime.domain.units import GIB
from emulator_runtime.domain.wording import quoted
from scheduler_sims.inputs.cluster_file import ClusterSpec, NodeSpec
from scheduler_sims.inputs.table_file import place_of
from scheduler_sims.inputs.workload import Workload

Remedy = Callable[[JobSpec, ClusterSpec], str]
"""What to change so that a job, of which no configuration fits the cluster, does fit."""


class DoesNotFitError(InputError):
    """A job that no configuration lets run on this cluster, however empty it is."""

    code = "does-not-fit"


def check_fits(workload: Workload, cluster: ClusterSpec, place: str, remedy: Remedy | None = None) -> None:
    """Raises DoesNotFitError for the first job that can never run on the cluster, and says what it needs.

    `place`: of the workload; the line of the job is added where it is known. `remedy`: what to change.
    """
    known: dict[tuple[Configuration, ...], str] = {}  # most jobs of a trace have one of a few shapes
    for number, job in enumerate(workload.jobs):
        if (reason := known.get(job.configurations)) is None:
            reason = known[job.configurations] = misfit(job, cluster)
        if reason:
            where = place_of(place, workload.lines[number]) if workload.lines else place
            fix = f"; {remedy(job, cluster)}" if remedy is not None else ""
            raise DoesNotFitError(where, f"job {quoted(job.job_id)} is larger than the cluster: {reason}{fix}")


def misfit(job: JobSpec, cluster: ClusterSpec) -> str:
    """Why none of the job's configurations can run on the empty cluster; "" where one can.

    For example: "needs 8 CPUs on one node; the largest node with 1 GPU has 2".
    """
    reasons = {}
    for configuration in job.configurations:
        reasons[configuration.name] = _misfit(configuration, cluster)
        if not reasons[configuration.name]:
            return ""
    if len(reasons) == 1:
        return next(iter(reasons.values()))
    return "; ".join(f"configuration {name} {reason}" for name, reason in reasons.items())


def _misfit(configuration: Configuration, cluster: ClusterSpec) -> str:
    """The first resource that no node has enough of, among the nodes that have enough of those before it."""
    nodes = cluster.nodes
    if not nodes:
        return "needs a node; the cluster has none"
    wanted = _gpus_text(configuration)
    if configuration.gpus:
        most = max(sum(configuration.allows(d.gpu_type) for d in node.devices) for node in nodes)
        if most < configuration.gpus:
            return f"needs {wanted} on one node; the largest node has {most}"
        if reason := _layers_misfit(configuration, cluster):
            return reason
        needed = configuration.device_memory_bytes
        largest = max(d.usable_memory_bytes for node in nodes for d in node.devices if configuration.allows(d.gpu_type))
        nodes = tuple(node for node in nodes if usable_gpus(configuration, node) >= configuration.gpus)
        if not nodes:
            each = f"with {needed / GIB:.1f} GiB each" if configuration.gpus > 1 else f"with {needed / GIB:.1f} GiB"
            return f"needs {wanted} {each} on one node; the largest GPU has {largest / GIB:.1f} GiB usable"
    having = f" with {wanted}" if configuration.gpus else ""
    cpu_milli = max(node.cpu_milli for node in nodes)
    if cpu_milli < configuration.cpu_milli:
        needs = f"needs {configuration.cpu_milli / 1000:g} CPUs on one node"
        return f"{needs}; the largest node{having} has {cpu_milli / 1000:g}"
    nodes = tuple(node for node in nodes if node.cpu_milli >= configuration.cpu_milli)
    memory_bytes = max(node.memory_bytes for node in nodes)
    if memory_bytes < configuration.memory_bytes:
        needs = f"needs {configuration.memory_bytes / GIB:g} GiB of memory on one node"
        return f"{needs}; the largest node{having} has {memory_bytes / GIB:g} GiB"
    return _too_few(configuration, nodes)


def _layers_misfit(configuration: Configuration, cluster: ClusterSpec) -> str:
    """Why no NVLink domain has the GPUs of a layer of a language model; "" where one has, or where it isn't the reason."""
    tensor, gpus = configuration.parallelism.tensor, configuration.gpus
    if tensor == 1:
        return ""
    joined = cluster.nvlink.largest_domain(configuration)
    if tensor > joined:
        return f"divides each layer over {tensor} GPUs (tensor_parallel); NVLink joins at most {joined} here"
    large = [node for node in cluster.nodes if len(_usable(configuration, node)) >= gpus]
    if large and not any(usable_gpus(configuration, node) >= gpus for node in large):
        wanted = _gpus_text(configuration)
        return f"needs {wanted} on one node, each layer on {tensor} that NVLink joins; it joins fewer there"
    return ""


def _too_few(configuration: Configuration, nodes: tuple[NodeSpec, ...]) -> str:
    """Every task of a gang needs a node of its own, all with the same GPU type."""
    large = [node for node in nodes if node.memory_bytes >= configuration.memory_bytes]
    several = dict.fromkeys(device.gpu_type for node in large for device in node.devices)
    ways = configuration.or_on_one_type(several if configuration.min_tasks > 1 else ())
    enough = max(_alike_nodes(each, large) for each in ways)
    per_layer = configuration.parallelism.nodes_per_layer(configuration.gpus)
    if enough >= configuration.min_tasks:
        return ""
    alike = " with the same GPU type" if configuration.on_gpu else ""
    alike += ", those of a layer in one NVLink domain" if per_layer > 1 else ""
    return f"needs {configuration.min_tasks} nodes{alike}; {enough} {'is' if enough == 1 else 'are'} large enough"


def _alike_nodes(configuration: Configuration, nodes: Sequence[NodeSpec]) -> int:
    """How many of the nodes have room for tasks on equal GPUs; 0 if none has."""
    kinds: dict[tuple[str, ...], Counter[str]] = {}
    for node in nodes:
        if usable_gpus(configuration, node) >= configuration.gpus:
            kinds.setdefault(_gpu_types(configuration, node), Counter())[node.nvlink_domain or node.name] += 1
    per_layer = configuration.parallelism.nodes_per_layer(configuration.gpus)
    return max([whole_multiples(domains.values(), per_layer) for domains in kinds.values()], default=0)


def _gpus_text(configuration: Configuration) -> str:
    gpus = f"{configuration.gpus} GPU{'s' * (configuration.gpus != 1)}"
    types = configuration.gpu_types or ()
    named = [each for each in types if (whole := profile_of(each)[0]) == each or whole not in types]  # instances follow
    return f"{gpus} of type {' or '.join(named)}" if named else gpus


def usable_gpus(configuration: Configuration, node: NodeSpec) -> int:
    """How many GPUs of the empty node will do for the configuration."""
    domains = [node.domain_of(device) for device in _usable(configuration, node)]
    return configuration.parallelism.usable_gpus(domains, configuration.gpus)


def _gpu_types(configuration: Configuration, node: NodeSpec) -> tuple[str, ...]:
    """The types of the GPUs that a task would have on the empty node."""
    return tuple([device.gpu_type for device in _usable(configuration, node)[: configuration.gpus]])


def _usable(configuration: Configuration, node: NodeSpec) -> list[Device]:
    return [d for d in node.devices if configuration.fits_on(d.gpu_type, d.usable_memory_bytes)]
