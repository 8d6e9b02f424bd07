"""Converts an EmuJob and its objects into the scheduler's job: its work, its history, the allocation that it holds. Pure."""

from __future__ import annotations

from dataclasses import replace

from emulator_runtime.domain.errors import InputError, PolicyError
from emulator_runtime.domain.job import Configuration, JobSpec, ModelWork
from emulator_runtime.domain.units import to_s
from emulator_runtime.node.allocation import Allocation as AllocationAnnotation
from operators.fitting.workload import job_spec
from operators.kube.timestamps import ns_of
from operators.objects.emujob import EmuJob
from operators.objects.scheduler_notes import read_allocation
from operators.scheduling.remember.handover import AttainedService
from operators.scheduling.see.capacity import ClusterSnapshot
from operators.scheduling.see.job_objects import JobObjects, last_run
from scheduler_sims.clusters.open import PresentJob
from scheduler_sims.inputs.fit import DoesNotFitError, misfit
from scheduler_sims.interface.plan import WHOLE_DEVICE_MILLI, Allocation, DeviceShare, TaskPlacement
from scheduler_sims.loop.checks import check_batch


def job_id_of(emujob: EmuJob, *, one_namespace: bool) -> str:
    """The name in its workload if the scheduler serves one namespace, else namespace/name of the EmuJob."""
    return emujob.job_id if one_namespace else str(emujob.key)


def read_job(
    emujob: EmuJob,
    job_objects: JobObjects,
    snapshot: ClusterSnapshot,
    name: tuple[str, int],
    submitted: str,
    *,
    one_size: bool,
) -> JobSpec:
    """The scheduler's job. `name`: its id and row; `submitted`: RFC 3339; `one_size`: see Actuator.

    Raises DoesNotFitError for a job that is larger than the cluster, InputError for a specification or submission time that
    can't be read.
    """
    job_id, row = name
    spec = emujob.spec
    if one_size and job_objects.job is not None:
        gpus = spec.configuration(job_objects.job.configuration).gpus
        spec = spec.model_copy(update={"configurations": tuple(c for c in spec.configurations if c.gpus == gpus)})
    at_ns = ns_of(submitted)
    if at_ns is None:
        raise InputError(job_id, f"its status doesn't say when it was submitted: submittedAt is {submitted!r}")
    job = job_spec(job_id, spec, to_s(at_ns - snapshot.epoch_ns), row, snapshot.offers, snapshot.profiles)
    _check_profiles(job)
    if reason := misfit(job, snapshot.cluster):
        problem = f"job {job_id!r} is larger than the cluster: {reason}"
        raise DoesNotFitError("it waits for nodes", problem)
    return job


def gpus_of(emujob: EmuJob, configuration: str) -> int:
    """GPUs of each pod in a configuration."""
    return emujob.spec.configuration(configuration).gpus


def annotation_of(allocation: Allocation, row: int, *, elastic: bool = False) -> AllocationAnnotation:
    """The annotation for an allocation. `row` and `elastic`: of the job. All tasks of a job have equal CPUs, memory and GPUs."""
    first = allocation.tasks[0]
    shares = [share for task in allocation.tasks for share in task.shares if share.device]
    return AllocationAnnotation(
        configuration=allocation.configuration,
        nodes=allocation.nodes,
        cpu_milli=first.cpu_milli,
        memory_bytes=first.memory_bytes,
        devices=tuple(share.device for share in shares if share.device),
        milli=tuple(share.milli for share in shares),
        priority=tuple(share.priority for share in shares),
        row=row if shares else 0,
        gpus=len(first.shares) if elastic else 0,
        batch_size=allocation.batch_size if elastic else 0,
    )


def held_allocation(job_objects: JobObjects, spec: JobSpec, snapshot: ClusterSnapshot) -> Allocation | None:
    """The allocation of a job that runs, from the annotations of its pods (of its Job before it has pods).

    None if there is none, or if it doesn't fit the job, or the nodes as they are now.
    """
    annotated = [pod.allocation for pod in job_objects.live if pod.allocation]
    if not annotated and job_objects.job is not None:
        annotated = [job_objects.job.allocation]
    annotation = read_allocation(annotated[0] if annotated else "", spec.job_id)
    known = {node.name for node in snapshot.cluster.nodes}
    if annotation is None or not known.issuperset(annotation.nodes):
        return None
    try:
        configuration = spec.configuration(annotation.configuration)
        if configuration.elastic and annotation.gpus:
            nodes = len(annotation.nodes)
            configuration = configuration.with_gpus(annotation.gpus * nodes, nodes)
    except (KeyError, PolicyError):
        return None
    named = _named_shares(annotation, configuration, snapshot)
    tasks = []
    for node in annotation.nodes:
        own = [share for share in named if share.device and snapshot.devices[share.device].node == node]
        own = own[: configuration.gpus]
        missing = configuration.gpus - len(own)
        gpu_type = own[0].gpu_type if own else _type_on(node, configuration, snapshot)
        if missing and not gpu_type:
            return None  # the node has GPUs of other types now
        any_device = DeviceShare(None, gpu_type, memory_bytes=configuration.device_memory_bytes)
        shares = (*own, *[any_device] * missing)
        tasks.append(TaskPlacement(node, shares, annotation.cpu_milli, annotation.memory_bytes))
    return _with_batch(Allocation(annotation.configuration, tuple(tasks)), annotation.batch_size, spec)


def _with_batch(allocation: Allocation, batch_size: int, spec: JobSpec) -> Allocation | None:
    """None for a batch size that no plan could give the job: a pod's annotation is a claim of whoever may edit the pod."""
    if not batch_size or not spec.elastic:
        return allocation
    found = replace(allocation, batch_size=batch_size)
    try:
        check_batch(spec, spec.job_id, found)
    except PolicyError:
        return None
    return found


def _named_shares(
    annotation: AllocationAnnotation, configuration: Configuration, snapshot: ClusterSnapshot
) -> list[DeviceShare]:
    """The shares of devices that are still there, of all nodes."""
    whole = (WHOLE_DEVICE_MILLI,) * len(annotation.devices)
    terms = zip(annotation.devices, annotation.milli or whole, annotation.priority or (0,) * len(whole), strict=True)
    return [
        DeviceShare(uuid, device.gpu_type, milli, configuration.device_memory_bytes, priority)
        for uuid, milli, priority in terms
        if (device := snapshot.devices.get(uuid)) is not None and configuration.allows(device.gpu_type)
    ]


def waiting_job(
    job_objects: JobObjects,
    spec: JobSpec,
    snapshot: ClusterSnapshot,
    attained: AttainedService,
    now_s: float,
    *,
    elastic: bool,
) -> PresentJob:
    """The job with its history, without an allocation. `elastic`: its status counts samples; steps are then as submitted."""
    assert job_objects.emujob is not None
    status, ended_ns = job_objects.emujob.status, last_run(job_objects.emujob).to_ns
    end_s = now_s if ended_ns is None else min(now_s, to_s(ended_ns - snapshot.epoch_ns))
    done = min(status.steps_done, (spec.samples if elastic else spec.steps) - 1)
    job = PresentJob(spec, done, attained_gpu_s=attained.until(end_s), preemptions=status.preemptions)
    return replace(job, steps_done=done // spec.batch_size, samples_done=done) if elastic else job


def holding_job(job: PresentJob, allocation: Allocation, attained: AttainedService, now_s: float) -> PresentJob:
    """The same job with this allocation, since the time that the scheduler has recorded, else since now."""
    since_s = now_s if attained.since_s is None else min(now_s, attained.since_s)
    return replace(job, allocation=allocation, running_since_s=since_s, attained_gpu_s=attained.attained_gpu_s)


def _type_on(node: str, configuration: Configuration, snapshot: ClusterSnapshot) -> str:
    types = [d.gpu_type for d in snapshot.devices.values() if d.node == node and configuration.allows(d.gpu_type)]
    return types[0] if types else ""


def _check_profiles(job: JobSpec) -> None:
    """A configuration with a model lists the GPU types on which the model has a profile, if there are any."""
    if all(isinstance(job.work[c.name], ModelWork) and not c.gpu_types for c in job.configurations):
        raise DoesNotFitError(
            "it waits for nodes", f"job {job.job_id!r}: its model has no profile on any GPU of the cluster"
        )
