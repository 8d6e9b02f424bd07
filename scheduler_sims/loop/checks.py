"""Checks a policy's plan before any action: its types, and that it contradicts neither itself nor the workload."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from emulator_runtime.domain.errors import PolicyError
from emulator_runtime.domain.job import Configuration, JobSpec, ModelWork
from emulator_runtime.domain.units import gib
from scheduler_sims.interface.plan import Allocation, Plan, TaskPlacement


class PlanRefusedError(PolicyError):
    """A plan that can't be applied because of one job. `never`: the allocation would not fit an empty cluster either."""

    code = "plan-refused"

    def __init__(self, job_id: str, problem: str, *, never: bool = False) -> None:
        super().__init__(problem)
        self.job_id, self.never = job_id, never


class PolicyFailedError(PolicyError):
    """The policy raised an exception, or returned something that is no plan. `summary`: the message without the time."""

    code = "policy-failed"

    def __init__(self, message: str, summary: str) -> None:
        super().__init__(message)
        self.summary = summary


def check_types(plan: Plan) -> None:
    """Raises PolicyError for mistakes that a type checker would find in the policy."""
    for job_id, allocation in plan.started.items():
        if not isinstance(allocation, Allocation):
            hint = "; place() found no room, so leave the job out" if allocation is None else ""
            raise PlanRefusedError(
                job_id, f"the plan starts job {job_id!r} with {type(allocation).__name__}, not an Allocation{hint}"
            )
    wake = plan.wake_at_s
    if wake is not None and (isinstance(wake, bool) or not isinstance(wake, int | float)):
        raise PolicyError(f"the plan's wake_at_s is {wake!r}; give emulated seconds, or None")


def check_allocation(spec: JobSpec | None, job_id: str, allocation: Allocation) -> None:
    """Raises PlanRefusedError unless the allocation is for a known job, in one of its configurations, with enough resources."""
    if spec is None:
        raise PlanRefusedError(job_id, f"the plan starts job {job_id!r}, which is not in the workload")
    try:
        configuration = spec.configuration(allocation.configuration)
    except KeyError:
        known = ", ".join(c.name for c in spec.configurations)
        raise PlanRefusedError(
            job_id, f"the plan runs job {job_id!r} as {allocation.configuration!r}; it has {known}"
        ) from None
    _check_gang(configuration, job_id, allocation)
    if configuration.elastic:
        configuration = _resized(configuration, job_id, allocation)
    if allocation.batch_size:
        check_batch(spec, job_id, allocation)
    for task in allocation.tasks:
        _check_task(configuration, job_id, task)


def check_layers(spec: JobSpec, allocation: Allocation, domains: Callable[[Allocation], Iterable[str]]) -> None:
    """Raises PlanRefusedError for a language model with a layer that is divided over GPUs that NVLink doesn't join.

    `domains` gives the NVLink domain of each device of the allocation.
    """
    replica = spec.configuration(allocation.configuration).parallelism
    if replica.tensor > 1 and not replica.layers_fit(domains(allocation)):
        raise PlanRefusedError(
            spec.job_id,
            f"the plan gives job {spec.job_id!r} GPUs of which NVLink doesn't join {replica.tensor} for each layer "
            "(tensor_parallel); FreeSpace.place chooses such GPUs",
        )


def _check_gang(configuration: Configuration, job_id: str, allocation: Allocation) -> None:
    """Raises PlanRefusedError unless all tasks are present and equal, each on a node of its own."""
    count = len(allocation.tasks)
    if count not in configuration.task_range:
        raise PlanRefusedError(
            job_id,
            f"the plan gives job {job_id!r} {count} tasks; its configuration {configuration.name} has {_range(configuration)}, "
            "all of them or none",
        )
    if count == 1:
        return
    if len(set(allocation.nodes)) < count:
        raise PlanRefusedError(
            job_id, f"the plan puts two tasks of job {job_id!r} on one node; each has a node of its own"
        )
    if len({task.host for task in allocation.tasks}) > 1:
        raise PlanRefusedError(
            job_id,
            f"the plan gives the tasks of job {job_id!r} different CPUs or memory; the slowest sets the pace, so give "
            "all of them the same",
        )


def _range(configuration: Configuration) -> str:
    tasks = configuration.task_range
    return f"{tasks[0]} to {tasks[-1]}" if len(tasks) > 1 else str(tasks[0])


def _resized(configuration: Configuration, job_id: str, allocation: Allocation) -> Configuration:
    """The configuration on as many GPUs as the allocation has. Raises PlanRefusedError if it can't run on so many."""
    try:
        return configuration.with_gpus(allocation.gpus, len(allocation.tasks))
    except PolicyError as error:
        raise PlanRefusedError(job_id, f"the plan gives job {job_id!r} {allocation.gpus} GPUs: {error}") from None


def check_batch(spec: JobSpec, job_id: str, allocation: Allocation) -> None:
    """Raises PlanRefusedError for a batch size of work without batches, or one that gives a GPU too many samples or none."""
    batch_size = allocation.batch_size
    if not batch_size:
        return
    configuration = spec.configuration(allocation.configuration)
    if not all(isinstance(work, ModelWork) for work in spec.work.values()):
        problem = "whose work is a duration; a batch size is for jobs whose work is a model (leave batch_size 0)"
        raise PlanRefusedError(job_id, f"the plan gives a batch size to job {job_id!r}, {problem}")
    most = -(-spec.batch_size // configuration.gpu_range.start) * allocation.gpus
    if not allocation.gpus <= batch_size <= most:
        raise PlanRefusedError(
            job_id,
            f"the plan gives job {job_id!r} steps of {batch_size} samples; on {allocation.gpus} GPUs it can have "
            f"{allocation.gpus} to {most}, on each GPU at most as many as with the least GPUs that it runs on",
        )


def _check_task(configuration: Configuration, job_id: str, task: TaskPlacement) -> None:
    if len(task.shares) != configuration.gpus or task.cpu_milli < configuration.cpu_milli:
        raise PlanRefusedError(
            job_id,
            f"the plan gives job {job_id!r} {len(task.shares)} GPUs and {task.cpu_milli / 1000:g} CPUs; its configuration "
            f"{configuration.name} needs {configuration.gpus} and {configuration.cpu_milli / 1000:g}",
        )
    least = min([share.memory_bytes for share in task.shares], default=configuration.device_memory_bytes)
    if task.memory_bytes < configuration.memory_bytes or least < configuration.device_memory_bytes:
        raise PlanRefusedError(
            job_id,
            f"the plan gives job {job_id!r} {gib(task.memory_bytes)} of memory and {gib(least)} on a GPU; its configuration "
            f"{configuration.name} needs {gib(configuration.memory_bytes)} and {gib(configuration.device_memory_bytes)}",
        )
    if configuration.gpu_types and any(s.gpu_type not in configuration.gpu_types for s in task.shares):
        raise PlanRefusedError(
            job_id,
            f"the plan puts job {job_id!r} on {task.gpu_type}; it can use {', '.join(configuration.gpu_types or ())}",
        )
