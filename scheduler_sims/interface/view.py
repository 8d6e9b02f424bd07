"""What a policy sees: a snapshot of jobs and nodes, the same for simulated, local and Kubernetes clusters.

Views are lazy: the loop rebuilds a JobView only when its job changed. What changes with time (steps done, attained service,
remaining time) is a method of ClusterView, computed only for the jobs that a policy asks about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from emulator_runtime.domain.job import Configuration, configuration_called
from emulator_runtime.domain.samples import RunSamples
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.interface.estimates import Estimates
from scheduler_sims.interface.plan import WHOLE_DEVICE_MILLI, Allocation, Plan
from scheduler_sims.interface.rounds import Round


class Phase(StrEnum):
    """The state of a job, as a scheduler sees it."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class JobView:
    """A job that has been submitted and has not ended. Times are emulated seconds; `allocation` is None while it is queued.

    `steps_done`, `samples_done` and `attained_gpu_s` date from the job's last change; ClusterView has methods for the present
    values. `batch_size`: samples of one step as submitted; `steps_total`: number of such steps.
    """

    job_id: str
    user: str
    submit_s: float
    row: int
    weight: float
    phase: Phase
    configurations: tuple[Configuration, ...]
    steps_total: int
    steps_done: int = 0
    attained_gpu_s: float = 0.0
    queued_since_s: float = 0.0
    running_since_s: float | None = None
    preemptions: int = 0
    allocation: Allocation | None = None
    batch_size: int = 1
    samples_done: int = 0

    @property
    def samples_total(self) -> int:
        return self.steps_total * self.batch_size

    @property
    def samples(self) -> RunSamples:
        """Which samples the steps of the present run process, or those of the next one if it has the submitted batch size."""
        batch_size = (self.allocation.batch_size if self.allocation else 0) or self.batch_size
        return RunSamples(self.steps_done, self.samples_done, batch_size, self.samples_total)

    def samples_after(self, steps_done: int) -> int:
        """Samples that are done when `steps_done` steps are, in the present run."""
        return self.samples.done(steps_done)

    def configuration(self, name: str) -> Configuration:
        """The configuration called `name`; KeyError if there is none."""
        return configuration_called(name, self.configurations)

    @property
    def queued(self) -> bool:
        return self.phase is Phase.QUEUED

    @property
    def holds_resources(self) -> bool:
        return self.phase is not Phase.QUEUED

    @property
    def order(self) -> tuple[float, int]:
        """The tie-break of all policies: submit time, then row of the workload."""
        return (self.submit_s, self.row)


@dataclass(frozen=True, slots=True)
class DeviceView:
    """One device. `free_milli`: free share in thousandths; `holders`: ids of the jobs that hold it.

    `sharing`: how jobs share it, such as "mps"; "exclusive": one job has it. `replicas`: how many jobs may share it at most;
    0: any number. `nvlink_domain`: devices with the same one are joined by NVLink, if their type has it, on one node or on
    several. Its name is that of the node where the cluster states no other.
    """

    uuid: str
    index: int
    gpu_type: str
    usable_memory_bytes: int
    free_milli: int = WHOLE_DEVICE_MILLI
    free_memory_bytes: int = 0
    holders: tuple[str, ...] = ()
    healthy: bool = True
    sharing: str = "exclusive"
    replicas: int = 0
    nvlink_domain: str = ""


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node: capacity, free CPUs and memory, devices. What stopping jobs still hold is not free.

    `nvlink_domain`: that of all its devices, which other nodes may share; None: they are in several.
    """

    name: str
    cpu_milli: int
    memory_bytes: int
    free_cpu_milli: int
    free_memory_bytes: int
    devices: tuple[DeviceView, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    nvlink_domain: str | None = ""

    @property
    def gpu_type(self) -> str | None:
        """The type of the node's devices; None for a CPU-only node."""
        return self.devices[0].gpu_type if self.devices else None


class NodeTable(Mapping[str, NodeView]):
    """The nodes of a view by name, made when they are asked for.

    `sizes`: a place for what policies compute from the sizes of the nodes alone, such as whether a configuration fits an empty
    one. None where sizes change without notice (on a node that is closed only what jobs hold counts).
    """

    def __init__(self, *, constant: bool) -> None:
        self.sizes: dict[object, Any] | None = {} if constant else None


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The whole snapshot. `jobs`: submitted jobs that have not ended, in order of submission (time, then row).

    `changes`: ids of jobs that changed since the last plan, ended ones included. `triggers`: why the policy is called
    (submitted, finished, failed, stopped, wake, retry; node when nodes change). `plan`: the plan in force. `state`: the
    `state` of that plan. `round`: the present round, for a policy that has `rounds`. `changed_nodes`: names of the nodes whose
    free capacity changed since the last plan, if `nodes` is the object of that plan's view; None: that isn't known. `held`: the
    allocation of each job that holds resources, in order of submission; None: look at the jobs.
    """

    now_s: float
    triggers: frozenset[str]
    nodes: Mapping[str, NodeView]
    jobs: Mapping[str, JobView]
    changes: frozenset[str]
    plan: Plan
    state: Any
    costs: ClusterCosts
    estimates: Estimates
    observed_steps: Callable[[str], int] = field(repr=False, default=lambda _job: 0)
    round: Round | None = None
    changed_nodes: frozenset[str] | None = None
    held: Mapping[str, Allocation] | None = field(repr=False, default=None)

    def queued(self) -> list[JobView]:
        """The waiting jobs, in order of submission."""
        return [job for job in self.jobs.values() if job.queued]

    def holding(self) -> list[JobView]:
        """The jobs that hold resources (starting, running or stopping), in order of submission."""
        if self.held is not None:
            return [self.jobs[job_id] for job_id in self.held]
        return [job for job in self.jobs.values() if job.holds_resources]

    def has_changed(self, job_id: str, allocation: Allocation) -> bool:
        """Whether the job or one of the nodes of `allocation` has changed since the last plan; true where that isn't known."""
        if self.changed_nodes is None or job_id in self.changes or "retry" in self.triggers:
            return True
        return not self.changed_nodes.isdisjoint(allocation.nodes)

    @property
    def all_is_news(self) -> bool:
        """Whether each start of the last plan is worth another try: where it isn't known what has changed, and where decisions
        take time, so that what a start waits for may be free once this decision takes effect."""
        return self.costs.decide_s > 0 or self.changed_nodes is None or "retry" in self.triggers

    def news_of(self, job_id: str, allocation: Allocation) -> bool:
        """Whether it is worth another try to give the job this allocation, which the last plan gave it and which hasn't been
        carried out yet: in vain if nothing has changed, since what it waits for isn't free yet."""
        return self.all_is_news or self.has_changed(job_id, allocation)

    def attained_gpu_s(self, job: JobView) -> float:
        """Attained service until now in GPU-seconds, over all GPU types (Tiresias, NSDI 2019)."""
        if job.running_since_s is None or job.allocation is None:
            return job.attained_gpu_s
        return job.attained_gpu_s + job.allocation.gpus * (self.now_s - job.running_since_s)

    def steps_done(self, job: JobView) -> int:
        """Steps done until now, as far as the cluster knows."""
        return self.observed_steps(job.job_id) if job.running_since_s is not None else job.steps_done

    def samples_done(self, job: JobView) -> int:
        """Samples done until now, as far as the cluster knows."""
        return job.samples_after(self.steps_done(job))

    def remaining_s(self, job: JobView, configuration: str | None = None) -> float:
        """Estimated remaining run time in a configuration (default: the present one, or the first one if the job waits).

        It is that on as many GPUs as the job was submitted with; `remaining_with_s` has that on others. Raises PolicyError
        under `--estimates none`.
        """
        gpu_type = None
        if configuration is None and job.allocation is not None:
            configuration, gpu_type = job.allocation.configuration, job.allocation.gpu_type
        name = configuration or job.configurations[0].name
        return self.estimates.duration_s(job, name, gpu_type) * (1 - self.samples_done(job) / job.samples_total)

    def remaining_with_s(self, job: JobView, allocation: Allocation) -> float:
        """Estimated remaining run time with an allocation, such as another number of GPUs or another batch size.

        Raises PolicyError under `--estimates none`.
        """
        samples_per_s = self.estimates.rate(job, allocation) * (allocation.batch_size or job.batch_size)
        return (job.samples_total - self.samples_done(job)) / samples_per_s
