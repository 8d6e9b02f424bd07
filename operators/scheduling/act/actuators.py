"""The ways to start and stop a job: `jobs` suspends its Job; `gated` and `binding` release its pods one by one.

With `gated` and `binding` the Job's template stays as it was created. A gang is released completely or not at all: if the program
died between two pods, or one pod of several was replaced, the released pods are deleted, and the Job controller creates new ones,
which wait. Pods that have succeeded stay so: if a job is stopped while it ends, only its other pods run again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from emulator_runtime.node.layout import GPU_RESOURCE
from operators.kube.api import JOB, POD, Json
from operators.objects.names import ALLOCATION, BATCH_SIZE, CONFIGURATION, CONTAINER, GATE
from operators.objects.node import HOSTNAME_LABEL
from operators.objects.pod import Pod
from operators.scheduling.act.writer import StartRequest, Writer
from operators.scheduling.see.job_objects import JobObjects
from operators.scheduling.see.job_state import State, is_running, read_state


class Actuator(Protocol):
    """One way to start and stop jobs. A write that is planned on outdated `job_objects` ends in a ConflictError."""

    one_size: bool
    """Whether a pod keeps the GPUs with which it was created: then only configurations with the same number of GPUs can run."""

    def read_state(self, job_objects: JobObjects) -> State:
        """The state of a job that has a Job and is neither deleted, ended nor suspended by its owner."""
        ...

    async def start(self, writer: Writer, job_objects: JobObjects, request: StartRequest) -> None:
        """Releases all pods of an idle job to their nodes. Raises what Writer raises."""
        ...

    async def stop(self, writer: Writer, job_objects: JobObjects) -> None:
        """Ends the job's pods; the job has stopped when it is idle again. Raises what Writer raises."""
        ...


class Jobs:
    """Suspends and resumes the Job. The pod scheduler that schedulerName names binds its pods."""

    one_size = False

    def read_state(self, job_objects: JobObjects) -> State:
        assert job_objects.job is not None
        job = job_objects.job
        if not job.suspended:
            return State.RUNNING if is_running(job_objects) else State.PLACED
        never_ran_or_ended = job.stopped or not job.started
        if job_objects.live or job.active or job.terminating or not never_ran_or_ended:
            return State.LEAVING
        return State.IDLE

    async def start(self, writer: Writer, job_objects: JobObjects, request: StartRequest) -> None:
        assert job_objects.job is not None
        await writer.patch(JOB, job_objects.job.key, {"spec": {"suspend": False, "template": template(request)}})

    async def stop(self, writer: Writer, job_objects: JobObjects) -> None:
        assert job_objects.job is not None
        await writer.patch(JOB, job_objects.job.key, {"spec": {"suspend": True}})


class PodActuator(ABC):
    """Releases pods one by one; stopping deletes the released ones. A subclass says what releasing a pod means."""

    one_size = True

    @abstractmethod
    def is_released(self, pod: Pod) -> bool:
        """Whether the pod may run, or runs, on its node."""

    @abstractmethod
    async def release(self, writer: Writer, pod: Pod, node: str, request: StartRequest) -> None:
        """Lets the pod run on the node."""

    def read_state(self, job_objects: JobObjects) -> State:
        assert job_objects.job is not None and job_objects.emujob is not None
        own = [pod for pod in job_objects.own if not pod.over]
        if len(own) < len(job_objects.live) or any(pod.deleting for pod in own):
            return State.LEAVING
        released = [pod for pod in own if self.is_released(pod)]
        if job_objects.job.suspended:
            return State.LEAVING if own else State.UNREADY
        if released and len(released) < len(own):
            return State.PARTLY_RELEASED
        if released:
            return State.RUNNING if is_running(job_objects) else State.PLACED
        done = sum(pod.phase == "Succeeded" for pod in job_objects.own)
        return State.IDLE if own and len(own) + done == job_objects.emujob.nodes else State.UNREADY

    async def start(self, writer: Writer, job_objects: JobObjects, request: StartRequest) -> None:
        waiting = sorted((pod for pod in job_objects.own if not pod.over), key=lambda pod: pod.key.name)
        for pod, node in zip(waiting, request.allocation.nodes, strict=False):
            await self.release(writer, pod, node, request)

    async def stop(self, writer: Writer, job_objects: JobObjects) -> None:
        for pod in job_objects.own:
            if not pod.over and not pod.deleting and self.is_released(pod):
                await writer.delete_pod(pod.key)


class Binding(PodActuator):
    """Binds pods to nodes."""

    def is_released(self, pod: Pod) -> bool:
        return bool(pod.node)

    async def release(self, writer: Writer, pod: Pod, node: str, request: StartRequest) -> None:
        key = replace(pod.key, version="")  # the uid identifies the pod; its status may change meanwhile
        await writer.patch(POD, key, {"metadata": {"annotations": annotations_of(request)}})
        await writer.bind(key, node)


class Gated(PodActuator):
    """Removes emugpu's scheduling gate from pods, and selects their node."""

    def is_released(self, pod: Pod) -> bool:
        return GATE not in pod.gates

    async def release(self, writer: Writer, pod: Pod, node: str, request: StartRequest) -> None:
        spec = {
            "schedulingGates": [{"$patch": "delete", "name": GATE}],  # gates of other programs stay
            "nodeSelector": {HOSTNAME_LABEL: request.hosts[node]},
        }
        await writer.patch(POD, pod.key, {"metadata": {"annotations": annotations_of(request)}, "spec": spec})


def annotations_of(request: StartRequest) -> dict[str, str]:
    """The annotations of a released pod."""
    return {
        CONFIGURATION: request.allocation.configuration,
        ALLOCATION: request.allocation.to_json(),
        **({BATCH_SIZE: str(request.batch_size)} if request.batch_size else {}),
    }


def template(request: StartRequest) -> Json:
    """The members of the Job's pod template that depend on the allocation."""
    # One term per node: the API server accepts one node name per term, and the pod scheduler then only examines these nodes.
    terms = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        for node in request.allocation.nodes
    ]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    gpus = str(request.gpus) if request.gpus else None  # no limit instead of 0, see operators/jobs/manifests.py
    container = {"name": CONTAINER, "resources": {"limits": {GPU_RESOURCE: gpus}}}
    return {
        "metadata": {"annotations": annotations_of(request)},
        "spec": {"affinity": affinity, "containers": [container]},
    }


ACTUATORS: Mapping[str, Actuator] = MappingProxyType({"jobs": Jobs(), "gated": Gated(), "binding": Binding()})


def state_of(job_objects: JobObjects) -> State:
    """The state of a job, read by the actuator that its EmuJob names."""
    actuator = ACTUATORS.get(job_objects.emujob.actuator) if job_objects.emujob is not None else None
    return read_state(job_objects, actuator.read_state if actuator is not None else lambda _objects: State.UNREADY)
