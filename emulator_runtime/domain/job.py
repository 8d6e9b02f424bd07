"""Jobs: what a user submits (JobSpec), in which ways it can run (Configuration) and what it really does (Work)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from emulator_runtime.domain.sensitivity import Sensitivity


@dataclass(frozen=True, slots=True)
class Configuration:
    """One way to run a job; resources are per task. No GPUs means a CPU configuration.

    `gpu_types` None: any type. `device_memory_bytes` is the peak on each device, 0 where the job doesn't say. `cpu_milli`
    and `memory_bytes` are the least that the job runs with; more than `best_cpu_milli` and `best_memory_bytes` doesn't
    make it faster (0: nobody has measured that). Several tasks are a gang: equal parts of one job, each on a node of its own,
    which run all at once or not at all.
    """

    name: str
    gpus: int
    cpu_milli: int
    memory_bytes: int = 0
    gpu_types: tuple[str, ...] | None = None
    device_memory_bytes: int = 0
    min_tasks: int = 1
    max_tasks: int = 1
    max_nodes: int | None = None
    best_cpu_milli: int = 0
    best_memory_bytes: int = 0

    @property
    def on_gpu(self) -> bool:
        return self.gpus > 0

    @property
    def total_gpus(self) -> int:
        """Of all tasks, where it has as few as it may."""
        return self.gpus * self.min_tasks


def configuration_called(name: str, configurations: Iterable[Configuration]) -> Configuration:
    """The one with this name; KeyError if there is none."""
    for configuration in configurations:
        if configuration.name == name:
            return configuration
    raise KeyError(name)


@dataclass(frozen=True, slots=True)
class TimedWork:
    """Work given as a duration on its own devices, whatever their type; cut into the job's steps.

    With a `sensitivity`, `duration_s` holds at speed 1, and the job is faster or slower as its share of the node is.
    """

    duration_s: float
    sensitivity: Sensitivity | None = None


@dataclass(frozen=True, slots=True)
class ModelWork:
    """Work given as a profiled model: a step's time and memory come from its profile for the GPU type at hand.

    `batch_size` is per GPU. `input_cpu_s` is CPU time that the input pipeline needs for one step of the whole job.
    `exchanges`: its GPUs exchange gradients on one node too, in the time that workloads/communication.py tells (those of
    several nodes always do).
    """

    model: str
    batch_size: int
    input_cpu_s: float = 0.0
    exchanges: bool = False


Work = TimedWork | ModelWork


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job as submitted. `work` says what each configuration really costs: the truth, which policies never see."""

    job_id: str
    user: str
    submit_s: float
    steps: int
    configurations: tuple[Configuration, ...]
    work: Mapping[str, Work]
    row: int
    weight: float = 1.0

    def configuration(self, name: str) -> Configuration:
        """The configuration called `name`; KeyError if there is none."""
        return configuration_called(name, self.configurations)
