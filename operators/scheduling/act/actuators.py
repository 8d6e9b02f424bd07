"""What actuators have in common that place a Job's pods one by one: the Job's own template stays as it was made.

A gang is let go all at once or not at all: where a program died between two pods, or one pod of several was replaced, the
pods that have a place are deleted, and the Job controller makes others that wait. Pods that have done their part are done for
good: where a job is stopped as it ends, only the others run again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from operators.kube.api import JOB, POD, Json
from operators.objects.names import ALLOCATION, CONFIGURATION, CONTAINER, GATE
from operators.objects.node import HOSTNAME_LABEL
from operators.objects.pool import DEFAULT_RESOURCE
from operators.scheduling.act.writer import Wanted, Writer
from operators.scheduling.names import PLANNED_DEVICES
from operators.scheduling.see.job_objects import JobObjects, ScheduledPod
from operators.scheduling.see.job_state import State, is_running, look


class ByPods(ABC):
    """An actuator says when a pod has its place, and how it gets one."""

    one_size = True

    @abstractmethod
    def has_place(self, pod: ScheduledPod) -> bool:
        """Whether the pod was let go."""

    @abstractmethod
    async def let_go(self, writer: Writer, pod: ScheduledPod, node: str, wanted: Wanted) -> None:
        """Give the pod its place."""

    def look(self, job_objects: JobObjects) -> State:
        assert job_objects.job is not None and job_objects.order is not None
        own = [pod for pod in job_objects.own if pod.live]
        if len(own) < len(job_objects.live) or any(pod.deleting for pod in own):
            return State.LEAVING
        placed, job = [pod for pod in own if self.has_place(pod)], job_objects.job.facts
        if job.suspended:
            return State.LEAVING if own else State.UNREADY
        if placed and len(placed) < len(own):
            return State.TORN
        if placed:
            return State.RUNNING if is_running(job_objects) else State.HELD
        done = sum(pod.facts.phase == "Succeeded" for pod in job_objects.own)
        return State.IDLE if own and len(own) + done == job_objects.order.nodes else State.UNREADY

    async def start(self, writer: Writer, job_objects: JobObjects, wanted: Wanted) -> None:
        waiting = sorted((pod for pod in job_objects.own if pod.live), key=lambda pod: pod.facts.key.name)
        for pod, node in zip(waiting, wanted.allocation.nodes, strict=False):
            await self.let_go(writer, pod, node, wanted)

    async def stop(self, writer: Writer, job_objects: JobObjects) -> None:
        for pod in job_objects.own:
            if pod.live and not pod.deleting and self.has_place(pod):
                await writer.delete_pod(pod.facts.key)


def notes(wanted: Wanted) -> dict[str, str]:
    """The annotations of a pod that was let go."""
    return {
        CONFIGURATION: wanted.allocation.configuration,
        ALLOCATION: wanted.allocation.to_json(),
        PLANNED_DEVICES: ",".join(wanted.devices),
    }


class Actuator(Protocol):
    """One way to start and stop. `job_objects` is as new as is known; what turns out to be older ends in a ConflictError."""

    one_size: bool
    """Whether the GPUs of a pod are as it was made: then only configurations with as many can run."""

    def look(self, job_objects: JobObjects) -> State:
        """What a job looks like that is there and goes on: idle, held, running or leaving."""
        ...

    async def start(self, writer: Writer, job_objects: JobObjects, wanted: Wanted) -> None:
        """Let an idle job's pods run there, all of them or none. Raises what Writer raises."""
        ...

    async def stop(self, writer: Writer, job_objects: JobObjects) -> None:
        """Let its pods end; it is over when the job is idle again. Raises what Writer raises."""
        ...


class Binding(ByPods):
    """Binds pods; to stop is to delete them."""

    def has_place(self, pod: ScheduledPod) -> bool:
        return bool(pod.facts.node)

    async def let_go(self, writer: Writer, pod: ScheduledPod, node: str, wanted: Wanted) -> None:
        key = replace(pod.facts.key, version="")  # its status may change meanwhile, its uid says which pod is meant
        await writer.patch(POD, key, {"metadata": {"annotations": notes(wanted)}})
        await writer.bind(key, node)


class Gated(ByPods):
    """Opens the gate; to stop is to delete the pods."""

    def has_place(self, pod: ScheduledPod) -> bool:
        return GATE not in pod.gates

    async def let_go(self, writer: Writer, pod: ScheduledPod, node: str, wanted: Wanted) -> None:
        spec = {
            "schedulingGates": [{"$patch": "delete", "name": GATE}],  # other people's gates stay
            "nodeSelector": {HOSTNAME_LABEL: wanted.hosts[node]},
        }
        await writer.patch(POD, pod.facts.key, {"metadata": {"annotations": notes(wanted)}, "spec": spec})


class Jobs:
    """Suspends and resumes the Job. Pods are bound by whoever their schedulerName names."""

    one_size = False

    def look(self, job_objects: JobObjects) -> State:
        assert job_objects.job is not None
        job = job_objects.job.facts
        if not job.suspended:
            return State.RUNNING if is_running(job_objects) else State.HELD
        never_ran_or_ended = job.stopped or not job.started
        if job_objects.live or job.active or job.terminating or not never_ran_or_ended:
            return State.LEAVING
        return State.IDLE

    async def start(self, writer: Writer, job_objects: JobObjects, wanted: Wanted) -> None:
        assert job_objects.job is not None
        await writer.patch(JOB, job_objects.job.facts.key, {"spec": {"suspend": False, "template": template(wanted)}})

    async def stop(self, writer: Writer, job_objects: JobObjects) -> None:
        assert job_objects.job is not None
        await writer.patch(JOB, job_objects.job.facts.key, {"spec": {"suspend": True}})


def template(wanted: Wanted) -> Json:
    """What of the pod template says where and how."""
    # One term per node, by name: the API server takes one name in each, and the scheduler of pods looks at those only.
    terms = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        for node in wanted.allocation.nodes
    ]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    gpus = str(wanted.gpus) if wanted.gpus else None  # none at all rather than 0, see operators/jobs/manifests.py
    container = {"name": CONTAINER, "resources": {"limits": {DEFAULT_RESOURCE: gpus}}}
    return {"metadata": {"annotations": notes(wanted)}, "spec": {"affinity": affinity, "containers": [container]}}


ACTUATORS: Mapping[str, Actuator] = MappingProxyType({"jobs": Jobs(), "gated": Gated(), "binding": Binding()})


def state_of(job_objects: JobObjects) -> State:
    """What a job looks like."""
    actuator = ACTUATORS.get(job_objects.order.actuator) if job_objects.order is not None else None
    return look(job_objects, actuator.look if actuator is not None else lambda _mine: State.UNREADY)
