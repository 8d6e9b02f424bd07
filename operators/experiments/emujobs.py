"""The EmuJob for each job of a workload: the same work in the same configurations, marked with its run and its prediction."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.job import Configuration, JobSpec, ModelWork, TimedWork, Work
from emulator_runtime.domain.sensitivity import Knots, Sensitivity
from emulator_runtime.domain.units import MAX_UNIT_NS, to_ns, to_s
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.profiles.user_file import model_document
from operators.kube.api import EMUJOB, Json
from operators.kube.timestamps import rfc3339_micro
from operators.objects.names import BATCH, DEFAULT_SCHEDULER, EXPERIMENT_LABEL, JOB_ID, POLICY, PREDICTED, REPEAT, ROW

_MAX_NAME = 50
"""A pod is named after the EmuJob, an index and a random suffix: 63 characters in all."""
_MAX_TENANT = _MAX_LABEL = 63
_PROGRAM_REQUESTS = {"cpu": "100m", "memory": "512Mi"}


@dataclass(frozen=True, slots=True)
class RunTarget:
    """Where the EmuJobs of one run go, and how they are marked.

    `scheduler` empty: the Kubernetes scheduler `pod_scheduler` places their pods. `actuator`: how `scheduler` starts and
    stops them (docs/schedulers.md). `policy` and `repeat` name the run. `predicted`: the predicted JCT of each job, seconds.
    `profiles`: of the workload's models; None: the bundled ones. `program_files`: the ConfigMap with the files of programs;
    empty: there is none.
    """

    namespace: str
    experiment: str
    scheduler: str = ""
    pod_scheduler: str = DEFAULT_SCHEDULER
    actuator: str = "jobs"
    policy: str = ""
    repeat: int = 1
    predicted: Mapping[str, float] = field(default_factory=dict)
    profiles: ProfileTable | None = None
    program_files: str = ""

    @property
    def labels(self) -> dict[str, str]:
        """What a run is selected by: `kubectl get emujobs -A -l emugpu.dev/policy=srtf`."""
        return {POLICY: as_label(self.policy)} if self.policy else {}

    @property
    def annotations(self) -> dict[str, str]:
        """The policy with its options, exactly."""
        return {POLICY: self.policy, REPEAT: str(self.repeat)} if self.policy else {}


def as_label(policy: str) -> str:
    """The policy's title as a label may have it: `las:threshold_s=300` gives `las-threshold_s-300`."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", policy)[:_MAX_LABEL].strip("._-")


def names_of(jobs: Iterable[JobSpec]) -> dict[str, str]:
    """The name of each job's EmuJob: a DNS label that begins with a letter; the job id itself where it is one."""
    names: dict[str, str] = {}
    for job in jobs:
        name, number = _label(job.job_id), job.row
        while name in names.values() or (number == job.row and name != job.job_id):
            name = f"{_label(job.job_id)[: _MAX_NAME - 8]}-{number}"
            number += 1
        names[job.job_id] = name
    return names


def emujob_document(job: JobSpec, name: str, to: RunTarget, batch: str = "", created_ns: int = 0) -> Json:
    """The EmuJob to create; without its CPU configurations where a Kubernetes scheduler places it.

    `batch`: NAME/NUMBER of the jobs that are submitted together with it; empty: it is submitted alone. `created_ns`: now.
    Raises InputError for a job that can't be an EmuJob.
    """
    ways = [c for c in job.configurations if to.scheduler or c.on_gpu]
    if not ways:
        problem = (
            "runs on CPUs only, and Kubernetes' scheduler can't divide emulated CPUs; leave --default-scheduler out"
        )
        raise InputError(f"job {job.job_id!r}", problem)
    if len(job.user) > _MAX_TENANT:
        raise InputError(f"job {job.job_id!r}: user", f"may have {_MAX_TENANT} characters on a cluster")
    if to.scheduler and to.actuator != "jobs" and len({way.gpus for way in ways}) > 1:
        problem = (
            f"has configurations with different numbers of GPUs, and actuator {to.actuator} can't choose among them"
        )
        raise InputError(f"job {job.job_id!r}", f"{problem}; use actuator jobs")
    if to.scheduler and to.actuator != "jobs" and job.elastic:
        problem = f"its number of GPUs may change, and with actuator {to.actuator} pods keep theirs; use actuator jobs"
        raise InputError(f"job {job.job_id!r}: max_gpus", problem)
    if any(len(way.task_range) > 1 for way in ways):
        problem = "an EmuJob keeps its number of pods (spec.nodes); leave the column out, or observe it on this machine"
        raise InputError(f"job {job.job_id!r}: max_nodes", problem)
    if to.scheduler and any(way.elastic and isinstance(job.work[way.name], TimedWork) for way in ways):
        problem = "an EmuJob whose number of GPUs may change trains a profiled model; leave min_gpus and max_gpus out"
        raise InputError(f"job {job.job_id!r}: microbatches", problem)
    if to.scheduler and job.elastic and len({type(job.work[way.name]) for way in ways}) > 1:
        problem = (
            "a job whose number of GPUs may change counts samples, and a stated duration has none; remove the column"
        )
        raise InputError(f"job {job.job_id!r}: cpu_duration_s", problem)
    if len({way.min_tasks for way in ways}) > 1:
        problem = (
            "has configurations with different numbers of pods; an EmuJob has one number (spec.nodes): keep one of them"
        )
        raise InputError(f"job {job.job_id!r}", problem)
    return {
        "apiVersion": EMUJOB.api_version,
        "kind": EMUJOB.kind,
        "metadata": {
            "name": name,
            "namespace": to.namespace,
            "labels": {EXPERIMENT_LABEL: to.experiment, **to.labels},
            "annotations": {
                JOB_ID: job.job_id,
                ROW: str(job.row),
                **to.annotations,
                **({BATCH: batch} if batch else {}),
                **_prediction(to, job.job_id, created_ns),
            },
        },
        "spec": {
            "tenant": job.user,
            "weight": job.weight,
            "steps": job.steps,
            **({"nodes": ways[0].min_tasks} if ways[0].min_tasks > 1 else {}),
            "scheduler": _scheduler(to),
            "configurations": [_configuration(job, way, elastic=bool(to.scheduler)) for way in ways],
            **_own_profiles(job, to.profiles),
            **_program(job, to),
        },
    }


def _own_profiles(job: JobSpec, profiles: ProfileTable | None) -> Json:
    """The profiles of its models that aren't the bundled ones: pods, controller and scheduler know only those."""
    if profiles is None:
        return {}
    bundled = ProfileTable.bundled()
    models = sorted({work.model for work in job.work.values() if isinstance(work, ModelWork)})
    own = {name: profiles.model(name) for name in models}
    foreign = [
        (name, each) for name, profile in own.items() for each in profile.steps if not bundled.catalogue.find(each)
    ]
    if foreign:
        name, gpu_type = foreign[0]
        problem = (
            f"{name} has times on {gpu_type}, which clusters don't know; leave that GPU type out of the profiles file"
        )
        raise InputError(f"job {job.job_id!r}: model", problem)
    brought = {
        name: model_document(profile)
        for name, profile in own.items()
        if name not in bundled.models or bundled.model(name) != profile
    }
    return {"profiles": brought} if brought else {}


def _program(job: JobSpec, to: RunTarget) -> Json:
    """The program, its image, and a part of a CPU: it computes by itself."""
    if job.program is None:
        return {}
    if not job.program.image:
        problem = (
            "is missing: a program on Kubernetes needs an image, such as the emugpu-torch of `emugpu cluster load`"
        )
        raise InputError(f"job {job.job_id!r}: image", problem)
    program: Json = {"command": list(job.program.command), "resumes": job.program.resumes}
    files = {"files": to.program_files} if to.program_files else {}
    return {
        "program": {**program, **files},
        "image": job.program.image,
        "native": {"requests": dict(_PROGRAM_REQUESTS)},
    }


def _prediction(to: RunTarget, job_id: str, created_ns: int) -> dict[str, str]:
    """The annotation that the operator copies to the EmuJob's status (operators/results/predicted.py)."""
    seconds = to.predicted.get(job_id)
    if seconds is None:
        return {}
    by = to.policy[:_MAX_LABEL]
    text = json.dumps({"seconds": round(seconds, 6), "by": by, "at": rfc3339_micro(created_ns)}, separators=(",", ":"))
    return {PREDICTED: text}


def _scheduler(to: RunTarget) -> Json:
    if not to.scheduler:
        return {"schedulerName": to.pod_scheduler}
    bound = (
        {"schedulerName": to.scheduler} if to.actuator == "binding" else {}
    )  # else kube-scheduler would bind the pods
    return {"actuator": to.actuator, "name": to.scheduler, **bound}


def _label(text: str) -> str:
    label = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return (label if label[:1].isalpha() else f"j-{label}")[:_MAX_NAME].strip("-")


def _configuration(job: JobSpec, way: Configuration, *, elastic: bool) -> Json:
    """`elastic`: with the range of GPUs, from which a job-level scheduler may choose."""
    resources: Json = {"emuGPU": way.gpus, "cpu": f"{way.cpu_milli}m", "memory": str(way.memory_bytes)}
    if elastic and len(way.gpu_range) > 1:
        fewest, most = way.gpu_range.start, way.gpu_range[-1]
        resources |= {"minEmuGPU": fewest // way.min_tasks, "maxEmuGPU": most // way.min_tasks}
    types = {"gpuTypes": list(way.gpu_types)} if way.gpu_types else {}
    return {"name": way.name, "resources": resources, **types, "profile": _profile(job, way)}


def _profile(job: JobSpec, way: Configuration) -> Json:
    work = job.work[way.name]
    stages = _stages(job, way, work)
    if not isinstance(work, TimedWork):
        return {"model": work.model, "batchSize": work.batch_size * way.total_gpus, **stages}
    step_ns = round(to_ns(work.duration_s) / job.steps) - to_ns(work.host_s)
    if step_ns < 1:
        raise InputError(
            f"job {job.job_id!r}: steps", f"{job.steps} steps in {work.duration_s:g} s are less than 1 ns each"
        )
    if work.stages.exchange_ns and step_ns > MAX_UNIT_NS:
        problem = (
            f"steps of {to_s(step_ns):g} s; before an exchange (exchange_s) one takes at most {to_s(MAX_UNIT_NS):g} s"
        )
        raise InputError(f"job {job.job_id!r}: steps", problem)
    memory = {"memory": str(way.device_memory_bytes)} if way.on_gpu and way.device_memory_bytes else {}
    sensitivity = {"sensitivity": _curves(work.sensitivity)} if work.sensitivity else {}
    return {"stepTime": f"{step_ns}ns", **memory, **sensitivity, **stages}


def _stages(job: JobSpec, way: Configuration, work: Work) -> Json:
    """What each step needs beside the work of its GPUs."""
    times, input_cpu_s = work.stages, work.input_cpu_s if isinstance(work, ModelWork) else 0.0
    stages = {
        "fetch_s": ("fetchTime", times.fetch_ns),
        "input_cpu_s": ("inputCPUTime", to_ns(input_cpu_s)),
        "transfer_s": ("transferTime", times.transfer_ns),
        "host_s": ("hostTime", to_ns(work.host_s)),
        "exchange_s": ("exchangeTime", times.exchange_ns),
    }
    for column, (_, stage_ns) in stages.items():
        gpus = max(1, way.gpus) if column == "transfer_s" else 1  # all of them may be behind one link
        if stage_ns * gpus > MAX_UNIT_NS:
            of_all = f" for its {gpus} GPUs" if gpus > 1 else ""
            is_s, most_s = to_s(stage_ns * gpus), to_s(MAX_UNIT_NS)
            problem = f"is {is_s:g} s{of_all}, and on a cluster a step may have {most_s:g} s of each stage"
            raise InputError(f"job {job.job_id!r}: {column}", problem)
    return {name: f"{stage_ns}ns" for name, stage_ns in stages.values() if stage_ns}


def _curves(sensitivity: Sensitivity) -> Mapping[str, Any]:
    curves = {"cpu": _points(sensitivity.cpu, "m"), "memory": _points(sensitivity.memory, "")}
    return {name: points for name, points in curves.items() if points}


def _points(curve: Knots, unit: str) -> list[Json]:
    return [{"amount": f"{amount}{unit}", "speed": speed} for amount, speed in curve]
