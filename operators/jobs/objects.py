"""What the controller knows of EmuJobs, their Jobs and pods: the border where the API's JSON becomes types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from operators.documents import condition_holds, condition_of, object_at, objects_in, text_at, texts_of, whole_at
from operators.jobs.names import ALLOCATION, CONFIGURATION, JOB_LABEL

_REJECTIONS = ("UnexpectedAdmissionError", "NodeAffinity", "TopologyAffinityError")
"""And OutOf<resource>: status.reason of pods that a kubelet turned away (pkg/kubelet/lifecycle, container managers)."""


@dataclass(frozen=True, slots=True)
class Key:
    """Which object: by name, and by uid and version where a write has preconditions."""

    namespace: str
    name: str
    uid: str = ""
    version: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class EmuJobFacts:
    """One EmuJob; `created` is RFC 3339, `status` what the API server has."""

    key: Key
    created: str = ""
    generation: int = 1
    deleting: bool = False
    spec: Mapping[str, Any] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobFacts:
    """One batch/v1 Job. `owner`: uid of its controller; `stopped`: the Job controller has seen that it is suspended.

    `failure`: why it has failed for good; empty: it hasn't. Times are RFC 3339.
    """

    key: Key
    owner: str = ""
    deleting: bool = False
    suspended: bool = False
    stopped: bool = False
    started: str = ""
    active: int = 0
    terminating: int = 0
    failed: int = 0
    complete: bool = False
    completed: str = ""
    failure: str = ""
    failure_reason: str = ""
    configuration: str = ""
    allocation: str = ""

    @property
    def finished(self) -> bool:
        return self.complete or bool(self.failure_reason)

    @property
    def run(self) -> str:
        """When the present run began; empty while the Job is suspended or hasn't begun. Each resumption is another run."""
        return "" if self.suspended or self.stopped else self.started


@dataclass(frozen=True, slots=True)
class PodFacts:
    """One pod of an EmuJob. `rejected`: its node turned it away. Times are RFC 3339."""

    key: Key
    job: str
    owner: str = ""
    node: str = ""
    phase: str = "Pending"
    rejected: bool = False
    created: str = ""
    started: str = ""

    @property
    def over(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """One Service of an EmuJob."""

    key: Key


def key_of(document: Mapping[str, Any]) -> Key:
    """Namespace, name, uid and version."""
    metadata = object_at(document, "metadata")
    return Key(*(text_at(metadata, name) for name in ("namespace", "name", "uid", "resourceVersion")))


def emujob_facts(document: Mapping[str, Any]) -> EmuJobFacts:
    """An EmuJob as the API server sends it."""
    metadata = object_at(document, "metadata")
    return EmuJobFacts(
        key=key_of(document),
        created=text_at(metadata, "creationTimestamp"),
        generation=whole_at(metadata, "generation"),
        deleting="deletionTimestamp" in metadata,
        spec=object_at(document, "spec"),
        status=object_at(document, "status"),
    )


def job_facts(document: Mapping[str, Any]) -> JobFacts:
    """A Job as the API server sends it."""
    metadata, status = object_at(document, "metadata"), object_at(document, "status")
    notes = texts_of(object_at(document, "spec", "template", "metadata"), "annotations")
    failed = condition_of(status, "Failed") if condition_holds(status, "Failed") else {}
    return JobFacts(
        key=key_of(document),
        owner=_controller(metadata),
        deleting="deletionTimestamp" in metadata,
        suspended=object_at(document, "spec").get("suspend") is True,
        stopped=condition_holds(status, "Suspended"),
        started=text_at(status, "startTime"),
        active=whole_at(status, "active"),
        terminating=whole_at(status, "terminating"),
        failed=whole_at(status, "failed"),
        complete=condition_holds(status, "Complete"),
        completed=text_at(status, "completionTime") or text_at(failed, "lastTransitionTime"),
        failure=text_at(failed, "message"),
        failure_reason=text_at(failed, "reason") or ("Failed" if failed else ""),
        configuration=notes.get(CONFIGURATION, ""),
        allocation=notes.get(ALLOCATION, ""),
    )


def pod_facts(document: Mapping[str, Any]) -> PodFacts:
    """A Pod as the API server sends it."""
    metadata, status = object_at(document, "metadata"), object_at(document, "status")
    phase, reason = text_at(status, "phase") or "Pending", text_at(status, "reason")
    turned_away = reason in _REJECTIONS or reason.startswith("OutOf")
    return PodFacts(
        key=key_of(document),
        job=texts_of(metadata, "labels").get(JOB_LABEL, ""),
        owner=_controller(metadata),
        node=text_at(object_at(document, "spec"), "nodeName"),
        phase=phase,
        rejected=phase == "Failed" and turned_away and not condition_holds(status, "DisruptionTarget"),
        created=text_at(metadata, "creationTimestamp"),
        started=_started(status),
    )


def service_facts(document: Mapping[str, Any]) -> ServiceFacts:
    """A Service as the API server sends it."""
    return ServiceFacts(key_of(document))


def _controller(metadata: Mapping[str, Any]) -> str:
    owners = [owner for owner in objects_in(metadata, "ownerReferences") if owner.get("controller") is True]
    return text_at(owners[0], "uid") if owners else ""


def _started(status: Mapping[str, Any]) -> str:
    """When the first container began."""
    times = [
        text_at(object_at(container, "state", state), "startedAt")
        for container in objects_in(status, "containerStatuses")
        for state in ("running", "terminated")
    ]
    return min((time for time in times if time), default="")
