"""The numbers of GPUs and nodes that an elastic job can have, and how fast it is with each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from emulator_runtime.domain.errors import PolicyError
from emulator_runtime.domain.job import Configuration
from scheduler_sims.interface.plan import Allocation, DeviceShare, Plan, TaskPlacement
from scheduler_sims.interface.view import ClusterView, JobView, Phase
from scheduler_sims.policies.placing import FreeSpace, fits_somewhere, main_configuration


@dataclass(frozen=True, slots=True)
class Shape:
    """So many GPUs of one type, divided equally over so many nodes."""

    gpus: int
    nodes: int
    gpu_type: str


@dataclass(frozen=True, slots=True)
class Pool:
    """The nodes with GPUs of one type: how many healthy ones each has, by the node's name."""

    gpu_type: str
    gpus: Mapping[str, int]

    @property
    def largest(self) -> int:
        """The most GPUs of one node."""
        return max(self.gpus.values())


def pools(view: ClusterView) -> list[Pool]:
    """The GPU types of the cluster, in the order of nodes."""
    found: dict[str, dict[str, int]] = {}
    for node in view.nodes.values():
        for gpu_type, count in Counter(d.gpu_type for d in node.devices if d.healthy).items():
            found.setdefault(gpu_type, {})[node.name] = count
    return [Pool(gpu_type, gpus) for gpu_type, gpus in found.items()]


def elastic_configuration(view: ClusterView, job: JobView, policy: str) -> Configuration:
    """The job's configuration on GPUs. Raises PolicyError for a job that has none."""
    configuration = main_configuration(view, job)
    if not configuration.on_gpu:
        raise PolicyError(f"{policy}: job {job.job_id!r} runs on CPUs only; use another policy for this workload")
    return configuration


def can_have(configuration: Configuration, shape: Shape) -> bool:
    """Whether the job may run on so many GPUs of so many nodes of this type."""
    return configuration.runs_on(shape.gpus, shape.nodes) and configuration.allows(shape.gpu_type)


def has_room(view: ClusterView, configuration: Configuration, shape: Shape) -> bool:
    """Whether the job may run on this shape, and an NVLink domain of the cluster has room for each of its layers."""
    whole = configuration.parallelism.tensor == 1
    return can_have(configuration, shape) and (whole or fits_somewhere(view, with_shape(configuration, shape)))


def with_shape(configuration: Configuration, shape: Shape) -> Configuration:
    """The configuration on exactly this shape, to be placed."""
    return configuration.with_gpus(shape.gpus, shape.nodes).on_type(shape.gpu_type)


def imagined(configuration: Configuration, shape: Shape, batch_size: int = 0) -> Allocation:
    """An allocation of this shape on nodes without names, to ask for the speed with it."""
    each = shape.gpus // shape.nodes
    part = each / configuration.gpus
    task = TaskPlacement(
        "",
        (DeviceShare(None, shape.gpu_type, memory_bytes=configuration.device_memory_bytes),) * each,
        -int(-configuration.cpu_milli * part // 1),
        -int(-configuration.memory_bytes * part // 1),
    )
    return Allocation(configuration.name, (task,) * shape.nodes, batch_size)


def most_on_one_gpu(configuration: Configuration, job: JobView) -> int:
    """The largest part of a batch that one GPU may have: as many samples as on the least GPUs of the job."""
    return -(-job.batch_size // configuration.gpu_range.start)


def shape_of(allocation: Allocation) -> Shape:
    return Shape(allocation.gpus, len(allocation.tasks), allocation.gpu_type or "")


def held(job: JobView) -> Allocation | None:
    """What the job runs with and can keep."""
    return None if job.phase is Phase.STOPPING else job.allocation


def seated(
    view: ClusterView, wanted: Mapping[str, tuple[Configuration, int]], keep: Iterable[str]
) -> dict[str, Allocation]:
    """Allocations for the configurations `wanted`, each with a batch size; jobs in `keep` keep their devices.

    Jobs with more GPUs are placed first. A job without room is left out.
    """
    placed = {job_id: a for job_id in keep if (a := held(view.jobs[job_id])) is not None}
    space = FreeSpace.empty(view)
    for allocation in placed.values():
        space.take(allocation)
    rest = [(job_id, *each) for job_id, each in wanted.items() if job_id not in placed]
    for job_id, configuration, batch_size in sorted(rest, key=lambda each: -each[1].total_gpus):
        if (found := space.place(configuration)) is not None:
            placed[job_id] = replace(found, batch_size=batch_size)
    return placed


def working(view: ClusterView) -> frozenset[str]:
    """The UUIDs of the healthy devices."""
    return frozenset(d.uuid for node in view.nodes.values() for d in node.devices if d.healthy)


def kept(job: JobView, devices: frozenset[str]) -> Allocation | None:
    """What the job runs with and can keep; None if one of its devices isn't among `devices`, the healthy ones."""
    allocation = held(job)
    if allocation is None:
        return None
    return allocation if all(s.device in devices for task in allocation.tasks for s in task.shares) else None


def answer(
    view: ClusterView, targets: Mapping[str, Allocation], state: object, reasons: Mapping[str, str], away: str
) -> Plan:
    """The plan in which exactly the `targets` run. `away`: why others are stopped."""
    present = {job_id: a for job_id, a in targets.items() if job_id in view.jobs}
    now = view.plan.allocations
    start = {job: a for job, a in present.items() if job not in now or not a.same_place(now[job])}
    stop = [job for job in now if job not in present]
    stated = {job: reasons[job] for job in start if job in reasons} | dict.fromkeys(stop, away)
    return view.plan.evolve(start=start, stop=stop, state=state, reasons=stated)
