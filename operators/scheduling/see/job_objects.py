"""The objects of one EmuJob (itself, its Job, its pods), and what the scheduler reads in them beyond the shared models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from operators.kube.documents import text_at
from operators.objects.emujob import EmuJob, RunStatus
from operators.objects.forms import condition
from operators.objects.job import BatchJob
from operators.objects.pod import Pod

NO_RUN = RunStatus.model_construct()


@dataclass(frozen=True, slots=True)
class JobObjects:
    """All objects of one EmuJob. `job`: its Job, unless that is being deleted; `pods`: those of earlier Jobs too."""

    emujob: EmuJob | None
    job: BatchJob | None = None
    pods: tuple[Pod, ...] = ()

    @property
    def live(self) -> list[Pod]:
        """Pods that have neither succeeded nor failed."""
        return [pod for pod in self.pods if not pod.over]

    @property
    def own(self) -> list[Pod]:
        """The pods of the present Job."""
        return [pod for pod in self.pods if self.job is not None and pod.owner == self.job.key.uid]


@dataclass(frozen=True, slots=True)
class Usage:
    """GPUs of a node that one pod holds, of this scheduler or not. `emujob_uid` is empty for a pod without an EmuJob."""

    node: str
    gpus: int
    emujob_uid: str


NO_USAGE = Usage("", 0, "")


def usage_of(document: Mapping[str, Any]) -> Usage:
    """The GPUs that a pod, as the API server sends it, holds on its node; NO_USAGE if it holds none."""
    pod = Pod.read(document)
    if not pod.devices or not pod.node or pod.over:
        return NO_USAGE
    return Usage(pod.node, pod.devices, pod.emujob_uid)


def submitted_at(emujob: EmuJob) -> str:
    """The text of status.submittedAt (RFC 3339), which need not be a valid time; empty until the controller sets it."""
    return text_at(emujob.status_json, "submittedAt")


def last_run(emujob: EmuJob) -> RunStatus:
    """The newest run in the status; NO_RUN, without any times, if there is none."""
    return emujob.status.runs[-1] if emujob.status.runs else NO_RUN


def failure_of(emujob: EmuJob) -> str:
    """Why the EmuJob has failed, in words; empty if its status doesn't say."""
    failed = condition(emujob.status.conditions, "Failed")
    return failed.message or failed.reason
