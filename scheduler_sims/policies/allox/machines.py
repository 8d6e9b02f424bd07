"""AlloX's machines: a GPU, or a slot for one job on a CPU-only node. A machine runs one job at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf

from emulator_runtime.domain.errors import PolicyError
from emulator_runtime.domain.job import Configuration
from scheduler_sims.interface.plan import WHOLE_DEVICE_MILLI, Allocation
from scheduler_sims.interface.view import ClusterView, DeviceView, JobView, NodeTable, NodeView, Phase
from scheduler_sims.policies.placing import FreeSpace
from scheduler_sims.policies.waiting import checked_s


@dataclass(frozen=True, slots=True)
class Kind:
    """Machines of one kind run each job equally fast, or not at all. `gpu_type` None: a slot on a CPU-only node."""

    gpu_type: str | None
    usable_memory_bytes: int
    cpu_milli: int
    memory_bytes: int

    def fitting(self, job: JobView) -> Configuration | None:
        """The job's configuration for machines of this kind, if it fits an empty one."""
        wanted = cpu_configuration(job) if self.gpu_type is None else gpu_configuration(job)
        if wanted is None or wanted.cpu_milli > self.cpu_milli or wanted.memory_bytes > self.memory_bytes:
            return None
        fits = self.gpu_type is None or wanted.fits_on(self.gpu_type, self.usable_memory_bytes)
        return wanted if fits else None


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine; `ready_s` is the estimated time from now until it is free, 0 if it is."""

    name: str
    node: str
    kind: Kind
    ready_s: float
    free: bool
    device: str | None = None

    def place(self, space: FreeSpace, job: JobView) -> Allocation | None:
        """Places `job` here; None if the node has too few free CPUs or too little free memory."""
        wanted = self.kind.fitting(job)
        return space.place(wanted, node=self.node, device=self.device) if wanted else None


def gpu_configuration(job: JobView) -> Configuration | None:
    """The job's first one-GPU configuration; None for a job on CPUs only.

    Raises PolicyError for a job whose GPU configurations all want several GPUs.
    """
    on_gpu = [c for c in job.configurations if c.on_gpu]
    for configuration in on_gpu:
        if configuration.total_gpus == 1:
            return configuration
    if on_gpu:
        raise PolicyError(
            f"allox: job {job.job_id!r} wants {on_gpu[0].total_gpus} GPUs; AlloX is defined for one-GPU jobs, "
            "use another policy for this workload"
        )
    return None


def cpu_configuration(job: JobView) -> Configuration | None:
    """The job's first configuration of one task without GPUs, None if it has none."""
    return next((c for c in job.configurations if not c.on_gpu and c.min_tasks == 1), None)


def kinds_of(view: ClusterView) -> list[Kind]:
    """The kinds of machine in the cluster, whatever their health, in the order of nodes."""
    known = view.nodes.sizes if isinstance(view.nodes, NodeTable) else None
    if known is not None and kinds_of in known:
        return list(known[kinds_of])
    kinds = dict.fromkeys(_kind(node, device) for node in view.nodes.values() for device in node.devices or (None,))
    if known is not None:
        known[kinds_of] = tuple(kinds)
    return list(kinds)


def whole_s(view: ClusterView, job: JobView, kind: Kind) -> float:
    """Estimated run time of the whole of `job` on a machine of `kind`, in seconds; inf where it can't run."""
    wanted = kind.fitting(job)
    return inf if wanted is None else checked_s(job, view.estimates.duration_s(job, wanted.name, kind.gpu_type))


def left_s(view: ClusterView, job: JobView, whole: float) -> float:
    """The remaining part of `whole`, the run time of all steps; never below 0."""
    return max(0.0, whole * (1 - view.steps_done(job) / job.steps_total))


def machines_of(view: ClusterView) -> list[Machine]:
    """All machines in the order of nodes and devices. GPU nodes are not used for CPU configurations."""
    on_node: dict[str, list[JobView]] = {}
    for job in view.holding():
        for name in dict.fromkeys(job.allocation.nodes if job.allocation else ()):
            on_node.setdefault(name, []).append(job)
    machines: list[Machine] = []
    slots: dict[Kind, int] = {}
    for node in view.nodes.values():
        if node.devices:
            machines.extend(_gpus(view, node))
            continue
        kind = _kind(node, None)
        if kind not in slots:
            slots[kind] = _most_slots(view, kind)
        machines.extend(_slots(view, node, kind, slots[kind], on_node.get(node.name, [])))
    return machines


def _gpus(view: ClusterView, node: NodeView) -> Iterator[Machine]:
    for device in sorted(node.devices, key=lambda d: d.index):
        if device.healthy:
            free = device.free_milli >= WHOLE_DEVICE_MILLI
            ready_s = 0.0 if free else _ready_s(view, device)
            name = f"{node.name}/{device.index}"
            yield Machine(name, node.name, _kind(node, device), ready_s, free, device.uuid)


def _ready_s(view: ClusterView, device: DeviceView) -> float:
    holders = (view.jobs[job_id] for job_id in device.holders if job_id in view.jobs)
    return max((_busy_s(view, job, device.gpu_type) for job in holders), default=0.0)


def _slots(view: ClusterView, node: NodeView, kind: Kind, most: int, running: list[JobView]) -> Iterator[Machine]:
    """Slots of a CPU-only node: `most`, and at least the jobs that run there."""
    for job in running:
        yield Machine(node.name, node.name, kind, _busy_s(view, job, None), free=False)
    for _ in range(most - len(running)):
        yield Machine(node.name, node.name, kind, 0.0, free=True)


def _most_slots(view: ClusterView, kind: Kind) -> int:
    """As many as jobs of the largest demand fit on a CPU-only node of this kind."""
    fitting = [c for job in view.jobs.values() if (c := kind.fitting(job))]
    most = _slots_for(kind.cpu_milli, (c.cpu_milli for c in fitting), len(fitting))
    return min(most, _slots_for(kind.memory_bytes, (c.memory_bytes for c in fitting), len(fitting)))


def _slots_for(capacity: int, demands: Iterable[int], at_most: int) -> int:
    largest = max(demands, default=0)
    return min(at_most, capacity // largest) if largest else at_most


def _busy_s(view: ClusterView, job: JobView, gpu_type: str | None) -> float:
    """Time until a job that holds a machine leaves it."""
    if job.phase is Phase.STOPPING:
        return view.costs.release_s()
    if job.allocation is None:
        return 0.0
    return left_s(view, job, checked_s(job, view.estimates.duration_s(job, job.allocation.configuration, gpu_type)))


def _kind(node: NodeView, device: DeviceView | None) -> Kind:
    gpu_type, usable = (device.gpu_type, device.usable_memory_bytes) if device else (None, 0)
    return Kind(gpu_type, usable, node.cpu_milli, node.memory_bytes)
