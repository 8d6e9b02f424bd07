"""Jobs: what a user submits (JobSpec), the ways in which it can run (Configuration) and its actual cost (Work)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import ceil

from emulator_runtime.domain.errors import PolicyError
from emulator_runtime.domain.parallelism import DATA_PARALLEL, Parallelism
from emulator_runtime.domain.sensitivity import Sensitivity
from emulator_runtime.domain.stages import NO_STAGES, StageTimes


@dataclass(frozen=True, slots=True)
class Configuration:
    """One way to run a job. Resources are per task. A configuration without GPUs runs on CPUs only.

    `gpu_types`: None allows any type. `device_memory_bytes`: peak memory on each device, 0 if unknown. `cpu_milli` and
    `memory_bytes` are the minimum that the job needs; amounts above `best_cpu_milli` and `best_memory_bytes` don't make
    it faster (0: not measured). A job with several tasks is a gang: its tasks are equal, each runs on a node of its own,
    and they run all at the same time or not at all.
    An elastic configuration runs on any number of GPUs from `min_gpus` to `max_gpus`, counted over its tasks, which have equally
    many. `gpus`, CPUs and memory are those of the number that the job was submitted with, and of others in proportion
    (`with_gpus`). 0: only that number. `fewest_tasks`: on how few nodes (0: `min_tasks`, those that it was submitted with).
    `parallelism`: how a replica is divided; the job runs on whole replicas only.

    The hash is that of the first few fields, since policies look configurations up at each event.
    """

    name: str
    gpus: int
    cpu_milli: int
    memory_bytes: int = 0
    gpu_types: tuple[str, ...] | None = field(default=None, hash=False)
    device_memory_bytes: int = field(default=0, hash=False)
    min_tasks: int = 1
    max_tasks: int = field(default=1, hash=False)
    best_cpu_milli: int = field(default=0, hash=False)
    best_memory_bytes: int = field(default=0, hash=False)
    min_gpus: int = field(default=0, hash=False)
    max_gpus: int = field(default=0, hash=False)
    fewest_tasks: int = field(default=0, hash=False)
    parallelism: Parallelism = field(default=DATA_PARALLEL, hash=False)

    @property
    def on_gpu(self) -> bool:
        return self.gpus > 0

    @property
    def total_gpus(self) -> int:
        """GPUs of all tasks together, for the minimum number of tasks."""
        return self.gpus * self.min_tasks

    @property
    def gpu_range(self) -> range:
        """The numbers of GPUs on which it can run; not each of them can be divided equally among any number of tasks."""
        return range(self.min_gpus or self.total_gpus, (self.max_gpus or self.total_gpus) + 1, self.parallelism.gpus)

    @property
    def task_range(self) -> range:
        """The numbers of tasks that it can have."""
        return range(self.fewest_tasks or self.min_tasks, self.max_tasks + 1)

    @property
    def elastic(self) -> bool:
        """Whether it can run on several numbers of GPUs, or of nodes."""
        if not self.min_gpus and not self.max_gpus and not self.fewest_tasks and self.max_tasks == self.min_tasks:
            return False  # most are not, and a loop asks at each start
        return len(self.gpu_range) > 1 or len(self.task_range) > 1

    def runs_on(self, gpus: int, tasks: int) -> bool:
        """Whether it can run on `gpus` GPUs, divided equally over `tasks` nodes."""
        return gpus in self.gpu_range and tasks in self.task_range and self.parallelism.runs_on(gpus, tasks, self.gpus)

    def with_gpus(self, gpus: int, tasks: int = 0) -> Configuration:
        """This configuration on `gpus` GPUs of `tasks` nodes (0: the least number), for `FreeSpace.place` and checks.

        Raises PolicyError if it can't run on so many.
        """
        tasks = tasks or next((each for each in self.task_range if self.runs_on(gpus, each)), self.task_range.start)
        if not self.runs_on(gpus, tasks):
            problem = f"configuration {self.name} can't run on {gpus} GPUs of {tasks} nodes"
            raise PolicyError(f"{problem}; it can on {self._can}")
        fixed = replace(self, min_gpus=0, max_gpus=0, min_tasks=tasks, max_tasks=tasks, fewest_tasks=0)
        if gpus == self.total_gpus and tasks == self.min_tasks:
            return fixed
        each = gpus // tasks
        return replace(
            fixed,
            gpus=each,
            cpu_milli=-(-self.cpu_milli * each // self.gpus),
            memory_bytes=-(-self.memory_bytes * each // self.gpus),
        )

    @property
    def _can(self) -> str:
        """On what it can run, for messages."""
        gpus, nodes, replica = self.gpu_range, self.task_range, self.parallelism
        part = " or an equal part" if self.gpus < replica.tensor else ""
        each = f"each a multiple{part} of {replica.tensor}" if replica.tensor > 1 else "each as many"
        whole = f" in multiples of {replica.gpus}" if replica.gpus > 1 else ""
        return f"{gpus.start} to {gpus[-1]} GPUs{whole} on {nodes.start} to {nodes[-1]} nodes, {each}"

    def allows(self, gpu_type: str) -> bool:
        """Whether it may run on GPUs of this type."""
        return self.gpu_types is None or gpu_type in self.gpu_types

    def on_type(self, gpu_type: str) -> Configuration:
        """The same on one type of GPU only."""
        return replace(self, gpu_types=(gpu_type,))

    def or_on_one_type(self, gpu_types: Iterable[str]) -> Iterator[Configuration]:
        """This configuration, and for each of these types that it allows the same on that type alone.

        For gangs, whose tasks have equal GPUs: where nodes have several types, the first free ones may differ from node to node.
        """
        yield self
        for gpu_type in gpu_types:
            if self.allows(gpu_type):
                yield self.on_type(gpu_type)

    def fits_on(self, gpu_type: str, usable_memory_bytes: int) -> bool:
        """Whether an empty GPU of this type and usable memory will do."""
        allowed = self.gpu_types
        return (allowed is None or gpu_type in allowed) and usable_memory_bytes >= self.device_memory_bytes


def configuration_called(name: str, configurations: Iterable[Configuration]) -> Configuration:
    """The configuration with this name. Raises KeyError if there is none."""
    for configuration in configurations:
        if configuration.name == name:
            return configuration
    raise KeyError(name)


@dataclass(frozen=True, slots=True)
class TimedWork:
    """Work given as a duration that holds for every GPU type. The duration is divided among the job's steps.

    With a `sensitivity`, `duration_s` holds at speed 1; more or fewer CPUs and memory change the speed. Example: 100 s at
    speed 2 take 50 s. `host_s`: the part of each step in which the host works and the GPU waits. `stages`: what a step needs of
    other resources, in addition to the duration.
    """

    duration_s: float
    sensitivity: Sensitivity | None = None
    host_s: float = 0.0
    stages: StageTimes = NO_STAGES

    def on_gpus(self, gpus: int, configuration: Configuration) -> TimedWork:
        """The same steps on another number of GPUs than the configuration was submitted with, if it says how they are divided."""
        replica, submitted = configuration.parallelism, configuration.total_gpus
        if gpus == submitted or not replica.microbatches:
            return self
        return replace(self, duration_s=self.duration_s * replica.slots(gpus) / replica.slots(submitted))


@dataclass(frozen=True, slots=True)
class ModelWork:
    """Work given as a profiled model: the step time and memory come from the model's profile for the assigned GPU type.

    `batch_size` is per GPU. `input_cpu_s`: CPU time that the input pipeline needs for one step of the whole job.
    `exchanges`: the job's GPUs also exchange gradients if they are on one node, which takes the time that
    step_costs/communication.py computes. GPUs on several nodes always exchange gradients. `host_s`: time of the host before
    each step, in which the GPU waits. `stages`: what a step needs of other resources. `starts`: a program does it, and each of
    its runs takes the profile's start-up time as well. `own`: the model's profile (profiles/curves.py, which this layer doesn't
    know), where the job brings it.
    """

    model: str
    batch_size: int
    input_cpu_s: float = 0.0
    exchanges: bool = False
    host_s: float = 0.0
    stages: StageTimes = NO_STAGES
    starts: bool = False
    own: object | None = field(default=None, hash=False, repr=False)


Work = TimedWork | ModelWork


@dataclass(frozen=True, slots=True)
class Program:
    """A training program that runs in place of emulated training: its words, in which {steps} and {batch} are replaced.

    `resumes`: it ends with a checkpoint of its own when it is asked to stop (SIGTERM), and goes on there when it is started
    again. Otherwise a job that was stopped begins anew. `image`: what it runs in on Kubernetes.
    """

    command: tuple[str, ...]
    resumes: bool = False
    image: str = ""

    def words(self, steps: int, batch_size: int) -> tuple[str, ...]:
        """The command for a job of so many steps, each with `batch_size` samples per GPU."""
        values = {STEPS_PLACE: str(steps), BATCH_PLACE: str(batch_size)}
        return tuple(_filled(word, values) for word in self.command)

    @property
    def counts_steps(self) -> bool:
        """Whether the number of steps is a part of the command."""
        return any(STEPS_PLACE in word for word in self.command)


STEPS_PLACE, BATCH_PLACE = "{steps}", "{batch}"


def _filled(word: str, values: Mapping[str, str]) -> str:
    for place, value in values.items():
        word = word.replace(place, value)
    return word


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A submitted job. `work` has the actual cost of each configuration, which policies can't see. `program`: what it runs; None:
    training is emulated. `until_s`: when it leaves regardless of its progress, as a replica of a service does; None: at its
    end."""

    job_id: str
    user: str
    submit_s: float
    steps: int
    configurations: tuple[Configuration, ...]
    work: Mapping[str, Work]
    row: int
    weight: float = 1.0
    program: Program | None = None
    until_s: float | None = None

    @property
    def begins_anew(self) -> bool:
        """Whether a run that is stopped has done nothing for the job."""
        return self.program is not None and not self.program.resumes

    @property
    def batch_size(self) -> int:
        """Samples in one step of the job as submitted, on all its GPUs together; 1 for work without a batch."""
        for configuration in self.configurations:
            work = self.work.get(configuration.name)
            if isinstance(work, ModelWork):
                return work.batch_size * configuration.total_gpus
        return 1

    @property
    def samples(self) -> int:
        """The length of the job."""
        return self.steps * self.batch_size

    @property
    def elastic(self) -> bool:
        """Whether a policy may choose its number of GPUs or of nodes, in at least one configuration."""
        return any(configuration.elastic for configuration in self.configurations)

    def work_on(self, name: str, gpus: int, batch_size: int = 0) -> Work:
        """The work of the configuration `name` on `gpus` GPUs, in steps of `batch_size` samples (0: as submitted).

        The samples of a step are divided among the GPUs. Where they can't be divided equally, those with one more set the
        pace. A duration is that on the GPUs that the job was submitted with (`TimedWork.on_gpus`).
        """
        work, samples = self.work[name], batch_size or self.batch_size
        if isinstance(work, TimedWork):
            return work.on_gpus(gpus, self.configuration(name))
        if samples == self.batch_size and gpus == self.configuration(name).total_gpus:
            return work
        input_cpu_s = work.input_cpu_s * samples / self.batch_size
        return replace(work, batch_size=ceil(samples / gpus), input_cpu_s=input_cpu_s)

    def configuration(self, name: str) -> Configuration:
        """The configuration with the name `name`. Raises KeyError if there is none."""
        return configuration_called(name, self.configurations)
