"""Jobs: what a user submits (JobSpec), in which ways it can run (Configuration) and what it really does (Work)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Configuration:
    """One way to run a job; resources are per task. No GPUs means a CPU configuration.

    `gpu_types` None: any type. `device_memory_bytes` is the peak on each device, 0 where the job doesn't say.
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

    @property
    def on_gpu(self) -> bool:
        return self.gpus > 0


def configuration_called(name: str, configurations: Iterable[Configuration]) -> Configuration:
    """The one with this name; KeyError if there is none."""
    for configuration in configurations:
        if configuration.name == name:
            return configuration
    raise KeyError(name)


@dataclass(frozen=True, slots=True)
class TimedWork:
    """Work given as a duration on its own devices, whatever their type; cut into the job's steps."""

    duration_s: float


@dataclass(frozen=True, slots=True)
class ModelWork:
    """Work given as a profiled model: a step's time and memory come from its profile for the GPU type at hand.

    `batch_size` is per GPU. `input_cpu_s` is CPU time that the input pipeline needs for one step of the whole job.
    """

    model: str
    batch_size: int
    input_cpu_s: float = 0.0


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
