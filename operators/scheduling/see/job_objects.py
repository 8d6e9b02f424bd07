"""What the scheduler knows of EmuJobs, their Jobs and pods: the border where the API's JSON becomes types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from operators.kube.documents import Key, condition_of, object_at, objects_in, text_at, texts_of, whole_at
from operators.objects.emujob import EmuJob
from operators.objects.job import BatchJob
from operators.objects.pod import Pod
from operators.scheduling.names import PLANNED_DEVICES


@dataclass(frozen=True, slots=True)
class ScheduledEmuJob:
    """One EmuJob: what somebody wants to be run."""

    facts: EmuJob
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        return self.facts.key

    @property
    def scheduler(self) -> str:
        """Whose job it is."""
        return self.facts.scheduler

    @property
    def actuator(self) -> str:
        return self.facts.actuator

    @property
    def held(self) -> bool:
        """Its owner holds it back."""
        return self.facts.suspended

    @property
    def nodes(self) -> int:
        return self.facts.nodes

    @property
    def phase(self) -> str:
        return self.facts.phase

    @property
    def failure(self) -> str:
        failed = condition_of(self.facts.status_json, "Failed")
        return text_at(failed, "message") or text_at(failed, "reason")

    @property
    def steps_done(self) -> int:
        return whole_at(self.facts.status_json, "stepsDone")

    def time(self, name: str) -> str:
        """The time `name` of its status, RFC 3339; empty: not known."""
        return text_at(self.facts.status_json, name)

    @property
    def last_run(self) -> Mapping[str, Any]:
        """The newest of its runs that is known; empty where none is."""
        return (objects_in(self.facts.status_json, "runs") or [{}])[-1]


@dataclass(frozen=True, slots=True)
class ScheduledJob:
    """The Job of an EmuJob; `devices`: as the scheduler counted them when it resumed the Job last."""

    facts: BatchJob
    devices: str = ""


@dataclass(frozen=True, slots=True)
class ScheduledPod:
    """A pod of an EmuJob. `order`: that one's uid; `gates`: what still holds its scheduling."""

    facts: Pod
    order: str
    deleting: bool = False
    gates: tuple[str, ...] = ()
    allocation: str = ""
    devices: str = ""

    @property
    def live(self) -> bool:
        return not self.facts.over


@dataclass(frozen=True, slots=True)
class Usage:
    """GPUs of a node that a pod has, whoever's it is; `order`: the uid of its EmuJob, empty for a pod of none."""

    node: str
    gpus: int
    order: str


NO_USAGE = Usage("", 0, "")


@dataclass(frozen=True, slots=True)
class JobObjects:
    """All that there is of one EmuJob. `job`: its own, unless it's being deleted; `pods`: of former Jobs too."""

    order: ScheduledEmuJob | None
    job: ScheduledJob | None = None
    pods: tuple[ScheduledPod, ...] = ()

    @property
    def live(self) -> list[ScheduledPod]:
        return [pod for pod in self.pods if pod.live]

    @property
    def own(self) -> list[ScheduledPod]:
        """The pods of the present Job."""
        return [pod for pod in self.pods if self.job is not None and pod.facts.owner == self.job.facts.key.uid]


def order_of(document: Mapping[str, Any]) -> ScheduledEmuJob:
    """An EmuJob as the API server sends it."""
    metadata = object_at(document, "metadata")
    return ScheduledEmuJob(EmuJob.read(document), texts_of(metadata, "labels"), texts_of(metadata, "annotations"))


def scheduled_job(document: Mapping[str, Any]) -> ScheduledJob:
    """A Job as the API server sends it."""
    job = BatchJob.read(document)
    return ScheduledJob(job, job.annotations.get(PLANNED_DEVICES, ""))


def scheduled_pod(document: Mapping[str, Any]) -> ScheduledPod:
    """A Pod as the API server sends it."""
    pod = Pod.read(document)
    devices = pod.annotations.get(PLANNED_DEVICES, "")
    return ScheduledPod(pod, pod.emujob_uid, pod.deleting, pod.gates, pod.allocation, devices)


def usage_of(document: Mapping[str, Any]) -> Usage:
    """The GPUs that a pod has of its node; NO_USAGE for one that has none."""
    pod = Pod.read(document)
    if not pod.devices or not pod.node or pod.over:
        return NO_USAGE
    return Usage(pod.node, pod.devices, pod.emujob_uid)
