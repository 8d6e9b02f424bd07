"""An EmuJob as a job of the scheduler's: its work, what it has been through, what it holds. Pure."""

from __future__ import annotations

from dataclasses import replace

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.job import Configuration, JobSpec, ModelWork
from emulator_runtime.domain.units import to_s
from operators.fitting.workload import job_spec
from operators.kube.documents import text_at
from operators.kube.timestamps import ns_of
from operators.objects.allocation import Allocation as Noted
from operators.objects.allocation import read_allocation
from operators.objects.emujob import EmuJobSpec
from operators.objects.names import JOB_ID
from operators.scheduling.names import ROW
from operators.scheduling.remember.handover import AttainedService
from operators.scheduling.see.capacity import ClusterState
from operators.scheduling.see.job_objects import JobObjects, ScheduledEmuJob
from scheduler_sims.clusters.open import PresentJob
from scheduler_sims.inputs.fit import DoesNotFitError, misfit
from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement


def job_id_of(order: ScheduledEmuJob, *, alone: bool) -> str:
    """Its name in its workload where one namespace is scheduled `alone`; else its name with its namespace's."""
    return order.annotations.get(JOB_ID, order.key.name) if alone else str(order.key)


def row_of(order: ScheduledEmuJob) -> int | None:
    """Its row in its workload; None where it doesn't say one."""
    text = order.annotations.get(ROW, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def read_job(
    order: ScheduledEmuJob,
    job_objects: JobObjects,
    cluster_state: ClusterState,
    name: tuple[str, int],
    submitted: str,
    *,
    one_size: bool,
) -> JobSpec:
    """The job called `name` (its id and row), submitted then (RFC 3339). `one_size`: as its actuator says.

    Raises DoesNotFitError for a job that is larger than the cluster, InputError for one that can't be read or has no valid
    time of submission.
    """
    job_id, row = name
    spec = order.facts.spec
    if one_size and job_objects.job is not None:
        gpus = spec.configuration(job_objects.job.facts.configuration).gpus
        spec = spec.model_copy(update={"configurations": tuple(c for c in spec.configurations if c.gpus == gpus)})
    at_ns = ns_of(submitted)
    if at_ns is None:
        raise InputError(job_id, f"its status doesn't say when it was submitted: submittedAt is {submitted!r}")
    found = job_spec(
        job_id, spec, to_s(at_ns - cluster_state.epoch_ns), row, cluster_state.offers, cluster_state.profiles
    )
    _check_known(found)
    if reason := misfit(found, cluster_state.cluster):
        problem = f"job {job_id!r} is larger than the cluster: {reason}"
        raise DoesNotFitError("it waits for nodes", problem)
    return found


def gpus_of(order: ScheduledEmuJob, configuration: str) -> int:
    """GPUs of each pod in a configuration."""
    return _spec_of(order).configuration(configuration).gpus


def noted(allocation: Allocation) -> tuple[Noted, tuple[str, ...]]:
    """What the annotation says, and the devices that are counted for it. All tasks of a job have the same of their nodes."""
    first = allocation.tasks[0]
    devices = tuple(share.device for task in allocation.tasks for share in task.shares if share.device)
    return Noted(allocation.configuration, allocation.nodes, first.cpu_milli, first.memory_bytes), devices


def held_by(job_objects: JobObjects, spec: JobSpec, cluster_state: ClusterState) -> Allocation | None:
    """What a job that runs has, as its pods' annotations say (its Job's, before it has pods); None where they don't."""
    told = [(pod.allocation, pod.devices) for pod in job_objects.live if pod.allocation]
    if not told and job_objects.job is not None:
        told = [(job_objects.job.facts.allocation, job_objects.job.devices)]
    text, devices_text = told[0] if told else ("", "")
    found = read_allocation(text, spec.job_id)
    known = {node.name for node in cluster_state.cluster.nodes}
    if found is None or not known.issuperset(found.nodes):
        return None
    try:
        wanted = spec.configuration(found.configuration)
    except KeyError:
        return None
    devices = [cluster_state.devices[uuid] for uuid in devices_text.split(",") if uuid in cluster_state.devices]
    tasks = []
    for node in found.nodes:
        own = [device for device in devices if device.node == node and _suits(device, wanted)][: wanted.gpus]
        missing = wanted.gpus - len(own)
        gpu_type = own[0].gpu_type if own else _type_on(node, wanted, cluster_state)
        if missing and not gpu_type:
            return None  # the node has other GPUs now
        named = [(device.uuid, device.gpu_type) for device in own] + [(None, gpu_type)] * missing
        shares = tuple(DeviceShare(uuid, kind, memory_bytes=wanted.device_memory_bytes) for uuid, kind in named)
        tasks.append(TaskPlacement(node, shares, found.cpu_milli, found.memory_bytes))
    return Allocation(found.configuration, tuple(tasks))


def present(
    job_objects: JobObjects, spec: JobSpec, cluster_state: ClusterState, attained: AttainedService, now_s: float
) -> PresentJob:
    """A job that is there, as one that waits."""
    assert job_objects.order is not None
    ended_ns = ns_of(text_at(job_objects.order.last_run, "to"))
    end_s = now_s if ended_ns is None else min(now_s, to_s(ended_ns - cluster_state.epoch_ns))
    return PresentJob(
        spec,
        min(job_objects.order.steps_done, spec.steps - 1),
        attained_gpu_s=attained.until(end_s),
        preemptions=job_objects.order.facts.status.preemptions,
    )


def present_with(job: PresentJob, held: Allocation, attained: AttainedService, now_s: float) -> PresentJob:
    """The same as one that holds this; since when is what the scheduler wrote down, else since now."""
    since_s = now_s if attained.since_s is None else min(now_s, attained.since_s)
    return replace(job, allocation=held, running_since_s=since_s, attained_gpu_s=attained.attained_gpu_s)


def _spec_of(order: ScheduledEmuJob) -> EmuJobSpec:
    return order.facts.spec


def _type_on(node: str, wanted: Configuration, cluster_state: ClusterState) -> str:
    types = [d.gpu_type for d in cluster_state.devices.values() if d.node == node and _suits(d, wanted)]
    return types[0] if types else ""


def _suits(device: Device, wanted: Configuration) -> bool:
    return wanted.gpu_types is None or device.gpu_type in wanted.gpu_types


def _check_known(job: JobSpec) -> None:
    """A configuration of a model names the types that it is known on, where there are any."""
    if all(isinstance(job.work[c.name], ModelWork) and not c.gpu_types for c in job.configurations):
        raise DoesNotFitError(
            "it waits for nodes", f"job {job.job_id!r}: its model has no profile on any GPU of the cluster"
        )
