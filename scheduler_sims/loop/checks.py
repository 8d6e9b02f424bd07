"""What is wrong with a plan by itself, whatever else runs: a mistake of the policy, told in one sentence."""

from __future__ import annotations

from emulator_runtime.domain.errors import PolicyError
from emulator_runtime.domain.job import JobSpec
from emulator_runtime.domain.units import gib
from scheduler_sims.interface.plan import Allocation, Plan


def check_types(plan: Plan) -> None:
    """Raises PolicyError for the slips that a type checker would have found in the policy."""
    for job_id, allocation in plan.started.items():
        if not isinstance(allocation, Allocation):
            hint = "; place() found no room, so leave the job out" if allocation is None else ""
            raise PolicyError(
                f"the plan starts job {job_id!r} with {type(allocation).__name__}, not an Allocation{hint}"
            )
    wake = plan.wake_at_s
    if wake is not None and (isinstance(wake, bool) or not isinstance(wake, int | float)):
        raise PolicyError(f"the plan's wake_at_s is {wake!r}; give emulated seconds, or None")


def check_allocation(spec: JobSpec | None, job_id: str, allocation: Allocation) -> None:
    """A plan's allocation names a known job, one of its configurations, and enough of everything for it."""
    if spec is None:
        raise PolicyError(f"the plan starts job {job_id!r}, which is not in the workload")
    try:
        configuration = spec.configuration(allocation.configuration)
    except KeyError:
        known = ", ".join(c.name for c in spec.configurations)
        raise PolicyError(f"the plan runs job {job_id!r} as {allocation.configuration!r}; it has {known}") from None
    if len(allocation.tasks) != 1:
        raise PolicyError(
            f"the plan gives job {job_id!r} {len(allocation.tasks)} tasks; clusters run jobs of one task yet"
        )
    task = allocation.tasks[0]
    if len(task.shares) != configuration.gpus or task.cpu_milli < configuration.cpu_milli:
        raise PolicyError(
            f"the plan gives job {job_id!r} {len(task.shares)} GPUs and {task.cpu_milli / 1000:g} CPUs; its configuration "
            f"{configuration.name} needs {configuration.gpus} and {configuration.cpu_milli / 1000:g}"
        )
    least = min((share.memory_bytes for share in task.shares), default=configuration.device_memory_bytes)
    if task.memory_bytes < configuration.memory_bytes or least < configuration.device_memory_bytes:
        raise PolicyError(
            f"the plan gives job {job_id!r} {gib(task.memory_bytes)} of memory and {gib(least)} on a GPU; its configuration "
            f"{configuration.name} needs {gib(configuration.memory_bytes)} and {gib(configuration.device_memory_bytes)}"
        )
    if any(configuration.gpu_types and s.gpu_type not in configuration.gpu_types for s in task.shares):
        raise PolicyError(
            f"the plan puts job {job_id!r} on {allocation.gpu_type}; it can use {', '.join(configuration.gpu_types or ())}"
        )
