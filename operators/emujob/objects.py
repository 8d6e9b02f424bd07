"""What controller and scheduler know of EmuJobs, their Jobs and pods: the border where the API's JSON becomes types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from operators.emujob.sizing import Sizing, sizing_of
from operators.kube.documents import (
    Key,
    condition_holds,
    condition_of,
    key_of,
    object_at,
    objects_in,
    text_at,
    texts_of,
    whole_at,
)
from operators.kube.timestamps import ns_of
from operators.objects.names import ALLOCATION, CONFIGURATION, EXPERIMENT_LABEL, JOB_LABEL
from operators.objects.scheduling_problem import ANNOTATION as SCHEDULING_PROBLEM
from operators.results.events import JobEvent
from operators.results.pods import Demand, demand_of, events_of_pod, work_uid_of
from operators.results.predicted import ANNOTATION as PREDICTED

_REJECTIONS = ("UnexpectedAdmissionError", "NodeAffinity", "TopologyAffinityError")
"""And OutOf<resource>: status.reason of pods that a kubelet turned away (pkg/kubelet/lifecycle, container managers)."""


_LATE_NS = 3_000_000_000
"""A creation time is cut to its second, and a change needs a moment to come here."""
NO_DEMAND = Demand((), 0)
NO_SIZING = Sizing()


@dataclass(frozen=True, slots=True)
class EmuJobFacts:
    """One EmuJob; `created` is RFC 3339, `status` what the API server has. `predicted`: its annotation of a forecast.

    `seen_ns`: when this was received, in nanoseconds since 1970.
    """

    key: Key
    created: str = ""
    generation: int = 1
    deleting: bool = False
    spec: Mapping[str, Any] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    predicted: str = ""
    scheduling_problem: str = ""
    experiment: str = ""
    seen_ns: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class JobFacts:
    """One batch/v1 Job. `owner`: uid of its controller; `stopped`: the Job controller has seen that it is suspended.

    `failure`: why it has failed for good; empty: it hasn't. Times are RFC 3339. `tasks`: pods that do work of their own;
    `demand`: what each asks of emugpu, if it is no EmuJob's. `seen_ns`: when this was received.
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
    created: str = ""
    tasks: int = 1
    demand: Demand = NO_DEMAND
    seen_ns: int = field(default=0, compare=False)

    @property
    def finished(self) -> bool:
        return self.complete or bool(self.failure_reason)

    @property
    def run(self) -> str:
        """When the present run began; empty while the Job is suspended or hasn't begun. Each resumption is another run."""
        return "" if self.suspended or self.stopped else self.started


@dataclass(frozen=True, slots=True)
class PodFacts:
    """One pod. `rejected`: its node turned it away. Times are RFC 3339. `seen_ns`: when this was received.

    `job`: the EmuJob that its label names. `work`: uid of what it works for, `events`: what its containers tell of it and
    `demand`; of a pod that has nothing to do with emugpu there is nothing but its name, so that it's never news.
    `allocation`: its annotation of what its job has now.
    """

    key: Key
    job: str = ""
    owner: str = ""
    node: str = ""
    phase: str = "Pending"
    rejected: bool = False
    created: str = ""
    started: str = ""
    deleting: bool = False
    work: str = ""
    demand: Demand = NO_DEMAND
    events: tuple[JobEvent, ...] = ()
    allocation: str = ""
    sizing: Sizing = NO_SIZING
    seen_ns: int = field(default=0, compare=False)

    @property
    def over(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """One Service of an EmuJob."""

    key: Key


def emujob_facts(document: Mapping[str, Any], seen_ns: int = 0) -> EmuJobFacts:
    """An EmuJob as the API server sends it."""
    metadata = object_at(document, "metadata")
    return EmuJobFacts(
        key=key_of(document),
        created=text_at(metadata, "creationTimestamp"),
        generation=whole_at(metadata, "generation"),
        deleting="deletionTimestamp" in metadata,
        spec=object_at(document, "spec"),
        status=object_at(document, "status"),
        predicted=texts_of(metadata, "annotations").get(PREDICTED, ""),
        scheduling_problem=texts_of(metadata, "annotations").get(SCHEDULING_PROBLEM, ""),
        experiment=texts_of(metadata, "labels").get(EXPERIMENT_LABEL, ""),
        seen_ns=seen_ns,
    )


def job_facts(document: Mapping[str, Any], seen_ns: int = 0) -> JobFacts:
    """A Job as the API server sends it."""
    metadata, status = object_at(document, "metadata"), object_at(document, "status")
    spec, labels = object_at(document, "spec"), texts_of(metadata, "labels")
    notes = texts_of(object_at(spec, "template", "metadata"), "annotations")
    failed = condition_of(status, "Failed") if condition_holds(status, "Failed") else {}
    return JobFacts(
        key=key_of(document),
        owner=_controller(metadata),
        deleting="deletionTimestamp" in metadata,
        suspended=spec.get("suspend") is True,
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
        created=text_at(metadata, "creationTimestamp"),
        tasks=max(1, whole_at(spec, "completions")) if spec.get("completionMode") == "Indexed" else 1,
        demand=NO_DEMAND if JOB_LABEL in labels else demand_of(object_at(spec, "template", "spec")),
        seen_ns=seen_ns,
    )


def pod_facts(document: Mapping[str, Any], seen_ns: int = 0) -> PodFacts:
    """A Pod as the API server sends it."""
    metadata, status = object_at(document, "metadata"), object_at(document, "status")
    labels, demand = texts_of(metadata, "labels"), demand_of(object_at(document, "spec"))
    if not demand.containers and JOB_LABEL not in labels:
        known = key_of(document)
        return PodFacts(Key(known.namespace, known.name, known.uid))
    phase, reason = text_at(status, "phase") or "Pending", text_at(status, "reason")
    turned_away = reason in _REJECTIONS or reason.startswith("OutOf")
    return PodFacts(
        key=key_of(document),
        job=labels.get(JOB_LABEL, ""),
        owner=_controller(metadata),
        node=text_at(object_at(document, "spec"), "nodeName"),
        phase=phase,
        rejected=phase == "Failed" and turned_away and not condition_holds(status, "DisruptionTarget"),
        created=text_at(metadata, "creationTimestamp"),
        started=_started(status),
        deleting="deletionTimestamp" in metadata,
        work=work_uid_of(document),
        demand=demand,
        events=tuple(events_of_pod(document, seen_ns)),
        allocation=texts_of(metadata, "annotations").get(ALLOCATION, ""),
        sizing=sizing_of(document) if JOB_LABEL in labels else NO_SIZING,
        seen_ns=seen_ns,
    )


def service_facts(document: Mapping[str, Any]) -> ServiceFacts:
    """A Service as the API server sends it."""
    return ServiceFacts(key_of(document))


def submission_ns(created: str, seen_ns: int) -> int:
    """When an object was submitted: when it was seen first, to the nanosecond; if nobody was there to see it then, when it was
    created, which the API server says in whole seconds."""
    created_ns = ns_of(created)
    late = created_ns is not None and seen_ns - created_ns >= _LATE_NS
    return created_ns if late and created_ns is not None else seen_ns


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
