"""Builds views from short descriptions, to test a policy without a cluster. Shipped for everyone who writes a policy.

    view = cluster_view(
        [Node("n1", gpus=2)],
        [Job("long", gpu_s=100, on="n1/0", done=0.5), Job("short", gpu_s=10), Job("wide", gpu_s=10, gpus=2)],
    )
    assert places(view, Srtf().plan(view)) == {"long": "n1/0", "short": "n1/1"}

Free capacity, holders and the plan in force follow from the jobs. Jobs are seen in order of submission (time, then row).
What a description leaves out can be set on the view: `dataclasses.replace(view, now_s=5.0)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.job import Configuration
from emulator_runtime.domain.parallelism import Parallelism
from emulator_runtime.domain.sensitivity import HostShare, Sensitivity
from emulator_runtime.domain.units import GIB
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.interface.estimates import NoEstimates, StepStages
from scheduler_sims.interface.plan import WHOLE_DEVICE_MILLI, Allocation, DeviceShare, Plan, TaskPlacement
from scheduler_sims.interface.rounds import Rounds
from scheduler_sims.interface.view import ClusterView, DeviceView, JobView, NodeView, Phase


@dataclass(frozen=True, slots=True)
class Node:
    """One node; `gpus` devices of one type, those with an index in `unhealthy` broken. `sharing`: how jobs share them, at
    most `replicas` each (0: any number). `nvlink`: the NVLink domain of each; empty: the node."""

    name: str
    gpus: int = 0
    cpus: float = 64
    memory_gib: float = 0
    gpu_type: str = "Tesla-T4"
    gpu_memory_gib: float = 16
    unhealthy: tuple[int, ...] = ()
    sharing: str = "exclusive"
    replicas: int = 0
    nvlink: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """A job: configuration `gpu` if `gpu_s` is given, `cpu` if `cpu_s` is. Both are isolated run times in seconds.

    `gpu_s` may be a table GPU type -> seconds. `on` is where the job is: devices as "n1/0 n1/1" or a node's name for
    its CPUs, empty while it waits. `phase` follows from `on` (running or queued) unless it is given. `done` is the share
    of its steps that are done (with the default `steps` exact to nine digits). `row` None: its place in the list.
    A job of several `nodes` is split over them equally (GPUs, CPUs and memory are of the whole job); `on` names devices of all.
    With `best_cpus` and `best_memory_gib` it runs `speedup` times as fast as with `cpus` and `memory_gib`, for which
    `gpu_s` holds; where it runs it has the latter, or the CPUs and GiB of `has`.
    On another number of GPUs, from `min_gpus` to `max_gpus`, its speed is in proportion. Each of its layers is divided over
    `tensor` GPUs.
    """

    job_id: str
    gpu_s: float | Mapping[str, float] | None = None
    cpu_s: float | None = None
    gpus: int = 1
    cpus: float = 1
    cpu_cpus: float = 1
    memory_gib: float = 0
    gpu_types: tuple[str, ...] | None = None
    gpu_memory_gib: float = 0
    user: str = "user"
    submit_s: float = 0.0
    row: int | None = None
    on: str = ""
    phase: Phase | None = None
    done: float = 0.0
    attained_gpu_s: float = 0.0
    queued_since_s: float | None = None
    running_since_s: float = 0.0
    steps: int = 1_000_000_000
    best_cpus: float = 0
    best_memory_gib: float = 0
    speedup: float = 1.0
    has: tuple[float, float] | None = None
    nodes: int = 1
    min_gpus: int = 0
    max_gpus: int = 0
    tensor: int = 1

    def sensitivity(self) -> Sensitivity | None:
        """How the speed depends on CPUs and memory; None if it doesn't."""
        if self.speedup == 1:
            return None
        best = self._each(max(self.cpus, self.best_cpus), max(self.memory_gib, self.best_memory_gib))
        return Sensitivity.between(self._each(self.cpus, self.memory_gib), best, self.speedup)

    def configurations(self) -> tuple[Configuration, ...]:
        """The job's configurations, the GPU one first."""
        memory = round(self.memory_gib * GIB)
        both = []
        if self.gpu_s is not None:
            least, best = self._each(self.cpus, self.memory_gib), self._each(self.best_cpus, self.best_memory_gib)
            both.append(
                Configuration(
                    "gpu",
                    self.gpus // self.nodes,
                    least.cpu_milli,
                    least.memory_bytes,
                    self.gpu_types,
                    round(self.gpu_memory_gib * GIB),
                    min_tasks=self.nodes,
                    max_tasks=self.nodes,
                    best_cpu_milli=best.cpu_milli,
                    best_memory_bytes=best.memory_bytes,
                    min_gpus=self.min_gpus,
                    max_gpus=self.max_gpus,
                    parallelism=Parallelism(self.tensor),
                )
            )
        if self.cpu_s is not None:
            both.append(Configuration("cpu", 0, round(self.cpu_cpus * 1000), memory))
        return tuple(both)

    def _each(self, cpus: float, memory_gib: float) -> HostShare:
        """The CPUs and memory on each node."""
        return HostShare(ceil(round(cpus * 1000) / self.nodes), ceil(round(memory_gib * GIB) / self.nodes))


@dataclass(frozen=True)
class TableEstimates:
    """Exact durations of described jobs."""

    jobs: Mapping[str, Job] = field(repr=False)
    available: bool = True

    def duration_s(self, job: JobView, configuration: str, gpu_type: str | None = None) -> float:
        """Run time of the whole job; `gpu_type` None means the fastest type of its table."""
        described = self.jobs[job.job_id]
        times = described.cpu_s if configuration == "cpu" else described.gpu_s
        if isinstance(times, Mapping):
            return min(times.values()) if gpu_type is None else times[gpu_type]
        if times is None:
            raise InputError(f"job {job.job_id}", f"has no run time for configuration {configuration!r}")
        return times

    def rate(self, job: JobView, allocation: Allocation) -> float:
        """Steps per second on the type of the first device, with these CPUs and this memory, or on this number of GPUs."""
        described = self.jobs[job.job_id]
        sensitivity = described.sensitivity()
        speed = sensitivity.speed(allocation.tasks[0].host) if sensitivity else allocation.gpus / described.gpus or 1.0
        return speed * job.steps_total / self.duration_s(job, allocation.configuration, allocation.gpu_type)

    def stages(self, job: JobView, configuration: str) -> StepStages:
        """Steps that only need the GPU, or on CPUs only those."""
        step_s = self.duration_s(job, configuration) / job.steps_total
        gpu_s = step_s if job.configuration(configuration).on_gpu else 0.0
        return StepStages(step_s, 0.0, step_s - gpu_s, gpu_s, 0.0)


def cluster_view(
    nodes: Sequence[Node],
    jobs: Sequence[Job],
    *,
    now_s: float = 0.0,
    after: Plan | None = None,
    costs: ClusterCosts | None = None,
    estimates: bool = True,
    rounds: Rounds | None = None,
) -> ClusterView:
    """The view of these nodes and jobs at `now_s`, for a policy with these `rounds`.

    `after`: the plan in force, whose state comes back (default: the running jobs, and no state). All jobs count as changed.
    Raises InputError for a job on a node or device that isn't there.
    """
    devices = {
        n.name: [Device(n.name, i, n.gpu_type, round(n.gpu_memory_gib * GIB)) for i in range(n.gpus)] for n in nodes
    }
    views = [_job_view(job, row if job.row is None else job.row, devices) for row, job in enumerate(jobs)]
    views.sort(key=lambda job: job.order)
    running = {job.job_id: job.allocation for job in views if job.allocation}
    done = {job.job_id: round(job.done * job.steps) for job in jobs}
    return ClusterView(
        now_s=now_s,
        triggers=frozenset({"submitted"}),
        nodes={node.name: _node_view(node, devices[node.name], running) for node in nodes},
        jobs={job.job_id: job for job in views},
        changes=frozenset(running) | frozenset(done) | frozenset(after.allocations if after else ()),
        plan=after or Plan.full(running),
        state=after.state if after else None,
        costs=costs or ClusterCosts(),
        estimates=TableEstimates({job.job_id: job for job in jobs}) if estimates else NoEstimates(),
        observed_steps=done.__getitem__,
        round=rounds.at(now_s) if rounds is not None else None,
    )


def places(view: ClusterView, plan: Plan) -> dict[str, str]:
    """The place of each job in a plan, written as in `Job.on`."""
    names = {d.uuid: f"{node.name}/{d.index}" for node in view.nodes.values() for d in node.devices}
    return {
        job_id: " ".join(
            " ".join(names[share.device or ""] for share in task.shares) or task.node for task in allocation.tasks
        )
        for job_id, allocation in plan.allocations.items()
    }


def _job_view(job: Job, row: int, devices: Mapping[str, Sequence[Device]]) -> JobView:
    phase = job.phase or (Phase.RUNNING if job.on else Phase.QUEUED)
    return JobView(
        job_id=job.job_id,
        user=job.user,
        submit_s=job.submit_s,
        row=row,
        weight=1.0,
        phase=phase,
        configurations=job.configurations(),
        steps_total=job.steps,
        steps_done=round(job.done * job.steps),
        samples_done=round(job.done * job.steps),
        attained_gpu_s=job.attained_gpu_s,
        queued_since_s=job.submit_s if job.queued_since_s is None else job.queued_since_s,
        running_since_s=job.running_since_s if phase is Phase.RUNNING else None,
        allocation=_allocation(job, devices) if job.on else None,
    )


def _allocation(job: Job, devices: Mapping[str, Sequence[Device]]) -> Allocation:
    names = [place.partition("/") for place in job.on.split()]
    nodes = list(dict.fromkeys(name for name, _, _ in names))
    tasks = []
    if len(nodes) > 1 and job.nodes == 1:
        raise InputError(f"job {job.job_id}", f"is on {job.on!r}, but node {nodes[0]!r} has not all of these devices")
    for node in nodes:
        if node not in devices:
            raise InputError(f"job {job.job_id}", f"is on {job.on!r}, but there is no node {node!r}")
        wanted = {int(index) for name, slash, index in names if slash and name == node}
        held = [device for device in devices[node] if device.index in wanted]
        if len(held) < len(wanted):
            raise InputError(f"job {job.job_id}", f"is on {job.on!r}, but node {node!r} has not all of these devices")
        tasks.append(_task(job, node, held))
    configuration = next(c for c in job.configurations() if c.on_gpu == any(task.shares for task in tasks))
    return Allocation(configuration.name, tuple(tasks))


def _task(job: Job, node: str, held: Sequence[Device]) -> TaskPlacement:
    configuration = next(c for c in job.configurations() if c.on_gpu == bool(held))
    memory = configuration.device_memory_bytes
    shares = tuple(DeviceShare(d.uuid, d.gpu_type, WHOLE_DEVICE_MILLI, memory) for d in held)
    host = (configuration.cpu_milli, configuration.memory_bytes)
    if job.has is not None:
        host = (round(job.has[0] * 1000), round(job.has[1] * GIB))
    return TaskPlacement(node, shares, *host)


def _node_view(node: Node, devices: Sequence[Device], running: Mapping[str, Allocation]) -> NodeView:
    tasks = [(job_id, task) for job_id, a in running.items() for task in a.tasks if task.node == node.name]
    holder = {share.device: job_id for job_id, task in tasks for share in task.shares}
    memory = round(node.memory_gib * GIB)
    return NodeView(
        name=node.name,
        cpu_milli=round(node.cpus * 1000),
        memory_bytes=memory,
        free_cpu_milli=round(node.cpus * 1000) - sum(task.cpu_milli for _, task in tasks),
        free_memory_bytes=memory - sum(task.memory_bytes for _, task in tasks),
        devices=tuple(_device_view(d, holder.get(d.uuid), node) for d in devices),
        nvlink_domain=None if len(set(node.nvlink)) > 1 else next(iter(node.nvlink), node.name),
    )


def _device_view(device: Device, holder: str | None, node: Node) -> DeviceView:
    usable = device.usable_memory_bytes
    return DeviceView(
        uuid=device.uuid,
        index=device.index,
        gpu_type=device.gpu_type,
        usable_memory_bytes=usable,
        free_milli=0 if holder else WHOLE_DEVICE_MILLI,
        free_memory_bytes=0 if holder else usable,
        holders=(holder,) if holder else (),
        healthy=device.index not in node.unhealthy,
        nvlink_domain=node.nvlink[device.index] if node.nvlink else node.name,
    )
