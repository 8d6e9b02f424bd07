"""The jobs of a workload as EmuJobs: the same work in the same configurations, in the cluster's words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.job import Configuration, JobSpec, TimedWork
from emulator_runtime.domain.sensitivity import Knots, Sensitivity
from emulator_runtime.domain.units import to_ns
from operators.kube.api import Json
from operators.objects.names import EXPERIMENT_LABEL, JOB_ID
from operators.scheduling.names import BATCH, ROW

_MOST_OF_NAME = 50
"""A pod's name is the job's, an index and a random end, 63 characters in all."""
_MOST_OF_TENANT = 63


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the EmuJobs of a run go. `scheduler` empty: Kubernetes' scheduler `pod_scheduler` places the pods by itself.

    `actuator`: how `scheduler` starts and stops them (docs/schedulers.md).
    """

    namespace: str
    experiment: str
    scheduler: str = ""
    pod_scheduler: str = "default-scheduler"
    actuator: str = "jobs"


def names_of(jobs: Iterable[JobSpec]) -> dict[str, str]:
    """Job id -> name of its EmuJob: a DNS label that begins with a letter, the job id itself where it is one."""
    names: dict[str, str] = {}
    for job in jobs:
        name, number = _label(job.job_id), job.row
        while name in names.values() or (number == job.row and name != job.job_id):
            name = f"{_label(job.job_id)[: _MOST_OF_NAME - 8]}-{number}"
            number += 1
        names[job.job_id] = name
    return names


def emujob_document(job: JobSpec, name: str, to: Destination, batch: str = "") -> Json:
    """The EmuJob to create, without its CPU ways where Kubernetes places it. Raises InputError where it has no such form.

    `batch`: NAME/NUMBER of the jobs that are submitted together with it; empty: it comes alone.
    """
    ways = [c for c in job.configurations if to.scheduler or c.on_gpu]
    if not ways:
        problem = "runs on CPUs only, which Kubernetes' scheduler can't divide; leave --default-scheduler out"
        raise InputError(f"job {job.job_id!r}", problem)
    if len(job.user) > _MOST_OF_TENANT:
        raise InputError(f"job {job.job_id!r}: user", f"may have {_MOST_OF_TENANT} characters on a cluster")
    if to.scheduler and to.actuator != "jobs" and len({way.gpus for way in ways}) > 1:
        problem = f"has configurations with unlike numbers of GPUs, which actuator {to.actuator} can't choose among"
        raise InputError(f"job {job.job_id!r}", f"{problem}; take actuator jobs")
    if len({way.min_tasks for way in ways}) > 1:
        problem = (
            "its ways to run have different numbers of pods, an EmuJob has one (spec.nodes); leave one of them out"
        )
        raise InputError(f"job {job.job_id!r}", problem)
    return {
        "apiVersion": "emugpu.dev/v1alpha1",
        "kind": "EmuJob",
        "metadata": {
            "name": name,
            "namespace": to.namespace,
            "labels": {EXPERIMENT_LABEL: to.experiment},
            "annotations": {JOB_ID: job.job_id, ROW: str(job.row), **({BATCH: batch} if batch else {})},
        },
        "spec": {
            "tenant": job.user,
            "weight": job.weight,
            "steps": job.steps,
            **({"nodes": ways[0].min_tasks} if ways[0].min_tasks > 1 else {}),
            "scheduler": _scheduler(to),
            "configurations": [_configuration(job, way) for way in ways],
        },
    }


def _scheduler(to: Destination) -> Json:
    if not to.scheduler:
        return {"schedulerName": to.pod_scheduler}
    bound = {"schedulerName": to.scheduler} if to.actuator == "binding" else {}  # Kubernetes' own must not be faster
    return {"actuator": to.actuator, "name": to.scheduler, **bound}


def _label(text: str) -> str:
    label = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return (label if label[:1].isalpha() else f"j-{label}")[:_MOST_OF_NAME].strip("-")


def _configuration(job: JobSpec, way: Configuration) -> Json:
    resources: Json = {"emuGPU": way.gpus, "cpu": f"{way.cpu_milli}m", "memory": str(way.memory_bytes)}
    types = {"gpuTypes": list(way.gpu_types)} if way.gpu_types else {}
    return {"name": way.name, "resources": resources, **types, "profile": _profile(job, way)}


def _profile(job: JobSpec, way: Configuration) -> Json:
    work = job.work[way.name]
    if not isinstance(work, TimedWork):
        if work.input_cpu_s:
            problem = "jobs on a cluster have no input pipeline yet; leave the column out"
            raise InputError(f"job {job.job_id!r}: input_cpu_s", problem)
        return {"model": work.model, "batchSize": work.batch_size * way.total_gpus}
    step_ns = round(to_ns(work.duration_s) / job.steps)
    if step_ns < 1:
        raise InputError(f"job {job.job_id!r}: steps", f"{job.steps} steps in {work.duration_s:g} s are too many")
    memory = {"memory": str(way.device_memory_bytes)} if way.on_gpu and way.device_memory_bytes else {}
    sensitivity = {"sensitivity": _curves(work.sensitivity)} if work.sensitivity else {}
    return {"stepTime": f"{step_ns}ns", **memory, **sensitivity}


def _curves(sensitivity: Sensitivity) -> Mapping[str, Any]:
    curves = {"cpu": _points(sensitivity.cpu, "m"), "memory": _points(sensitivity.memory, "")}
    return {name: points for name, points in curves.items() if points}


def _points(curve: Knots, unit: str) -> list[Json]:
    return [{"amount": f"{amount}{unit}", "speed": speed} for amount, speed in curve]
