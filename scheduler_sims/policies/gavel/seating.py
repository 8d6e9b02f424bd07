"""From chosen jobs and GPU types to nodes and devices: a job that keeps its type keeps its devices, others are placed anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

from emulator_runtime.domain.errors import PolicyError
from emulator_runtime.domain.job import Configuration
from scheduler_sims.interface.plan import Allocation
from scheduler_sims.interface.view import ClusterView, JobView, Phase
from scheduler_sims.policies.placing import FreeSpace, fits_somewhere, main_configuration


def capacity(view: ClusterView) -> dict[str, int]:
    """The healthy GPUs of each type, in the order of nodes."""
    return dict(Counter(d.gpu_type for node in view.nodes.values() for d in node.devices if d.healthy))


def gpu_configuration(view: ClusterView, job: JobView, policy: str) -> Configuration:
    """The job's configuration on GPUs. Raises PolicyError for a job that has none."""
    configuration = main_configuration(view, job)
    if not configuration.on_gpu:
        raise PolicyError(f"{policy}: job {job.job_id!r} runs on CPUs only; use another policy for this workload")
    return configuration


def rates(view: ClusterView, job: JobView, types: tuple[str, ...], policy: str) -> tuple[float, ...]:
    """Estimated steps per second on each GPU type, 0 where the job doesn't fit the empty cluster."""
    configuration = gpu_configuration(view, job, policy)
    each = []
    for gpu_type in types:
        fits = configuration.allows(gpu_type) and fits_somewhere(view, on_type(configuration, gpu_type))
        duration_s = view.estimates.duration_s(job, configuration.name, gpu_type) if fits else 0.0
        each.append(job.steps_total / duration_s if duration_s > 0 else 0.0)
    return tuple(each)


@lru_cache(maxsize=4096)
def on_type(configuration: Configuration, gpu_type: str) -> Configuration:
    """`Configuration.on_type`, made once, since each round asks for all jobs."""
    return configuration.on_type(gpu_type)


def seats(view: ClusterView, chosen: Mapping[str, str], policy: str) -> dict[str, Allocation]:
    """An allocation for each chosen job on its GPU type; none for a job that fragmentation leaves without room.

    Jobs with more GPUs are placed first.
    """
    healthy = {d.uuid for node in view.nodes.values() for d in node.devices if d.healthy}
    kept = {job_id: held for job_id, kind in chosen.items() if (held := _held(view.jobs[job_id], kind, healthy))}
    rest = [view.jobs[job_id] for job_id in chosen if job_id not in kept]
    if not rest:
        return kept
    space = FreeSpace.empty(view)
    for allocation in kept.values():
        space.take(allocation)
    for job, configuration in sorted(
        ((job, gpu_configuration(view, job, policy)) for job in rest), key=lambda pair: -pair[1].total_gpus
    ):
        if (allocation_ := space.place(on_type(configuration, chosen[job.job_id]))) is not None:
            kept[job.job_id] = allocation_
    return kept


def _held(job: JobView, gpu_type: str, healthy: set[str]) -> Allocation | None:
    """The job's present allocation, if it can stay there."""
    allocation = job.allocation
    if allocation is None or job.phase is Phase.STOPPING or allocation.gpu_type != gpu_type:
        return None
    return allocation if all(s.device in healthy for task in allocation.tasks for s in task.shares) else None
