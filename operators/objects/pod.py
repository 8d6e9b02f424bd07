"""A Pod as the API server sends it, read once for all programs. Missing or malformed members read as "not there".

Labels and annotations of a pod are its creator's claims: they name an EmuJob of the pod's own namespace at most. Facts are the
namespace, the uid, the node and the status, which the API server, the scheduler and the kubelet write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from emulator_runtime.node.layout import HOST_RESOURCE, JOB_LABEL, JOB_UID_LABEL, completion_index, work_uid
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
from operators.objects.names import ALLOCATION, CONTAINER, FINAL
from operators.objects.native import RESIZABLE, exact_amounts

OWN_DOMAIN = "emugpu.dev/"
"""Resources of emugpu's device plugins, and annotations of emugpu."""
RESIZE_IN_PROGRESS = "InProgress"
_RESIZE_CONDITIONS = {"PodResizePending": "Deferred", "PodResizeInProgress": RESIZE_IN_PROGRESS}
"""Conditions of a pod whose container doesn't have what it requests (core/v1), with the reason if the condition has none."""
_REJECTIONS = ("UnexpectedAdmissionError", "NodeAffinity", "TopologyAffinityError")
"""And OutOf<resource>: status.reason of pods that a kubelet rejected (pkg/kubelet/lifecycle, container managers)."""
MANAGER = "manager"
"""The sharing manager's container, and the name of its port (charts/emugpu/templates/node)."""
_MANAGER_LABELS = {"app.kubernetes.io/part-of": "emugpu", "app.kubernetes.io/component": "node"}
_MANAGER_ACCOUNT = "-node"
"""The chart calls the managers' service account <release>-node."""


@dataclass(frozen=True, slots=True)
class Demand:
    """The containers of a pod (or of a Job's template) that request resources of emugpu, and the sum of their devices."""

    containers: tuple[str, ...] = ()
    devices: int = 0


@dataclass(frozen=True, slots=True)
class Sizing:
    """Requests and limits of the container `train` in CPUs and bytes, and the kubelet's answer to the last resize.

    `trouble`: reason (Infeasible, Deferred, Error, InProgress) and message while the container doesn't have what it requests;
    `seen_by_kubelet`: its kubelet has read the present requests.
    """

    requests: Mapping[str, Fraction] = field(default_factory=dict)
    limits: Mapping[str, Fraction] = field(default_factory=dict)
    trouble: tuple[str, str] = ("", "")
    seen_by_kubelet: bool = True


NO_DEMAND = Demand()
NO_SIZING = Sizing()


@dataclass(frozen=True, slots=True)
class ContainerRun:
    """One start of a container. Times are RFC 3339; `finished` is empty while it runs.

    `message`: its termination message; for the pods of EmuJobs, the end of its log if it failed.
    """

    container: str
    started: str
    finished: str = ""
    exit_code: int = 0
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Pod:
    """`job`: the EmuJob that its label names, `emujob_uid`: the uid that another label claims for it. `owner`: the uid of its
    controller, `owner_kind` its kind; `batch_job` the same uid if that is a Job of Kubernetes' own API group `batch`.

    `rejected`: its node's kubelet turned it away. `disrupted`: preempted or evicted. Times are RFC 3339.
    `resources`: extended resources that it holds on its node; `demand`: those of emugpu, by container; `asking`: how many
    containers request any extended resource. `annotations`: those of emugpu. `seen_ns`: when this was received.
    """

    key: Key
    job: str = ""
    owner: str = ""
    node: str = ""
    phase: str = "Pending"
    rejected: bool = False
    created: str = ""
    deleting: bool = False
    disrupted: bool = False
    demand: Demand = NO_DEMAND
    asking: int = 0
    resources: Mapping[str, int] = field(default_factory=dict)
    runs: tuple[ContainerRun, ...] = ()
    gates: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    index: str = "0"
    sizing: Sizing = NO_SIZING
    owner_kind: str = ""
    batch_job: str = ""
    service_account: str = ""
    ports: Mapping[str, int] = field(default_factory=dict)
    seen_ns: int = field(default=0, compare=False)

    @classmethod
    def read(cls, document: Mapping[str, Any], seen_ns: int = 0) -> Pod:
        """A Pod as the API server sends it."""
        metadata, spec, status = (object_at(document, part) for part in ("metadata", "spec", "status"))
        labels, annotations = texts_of(metadata, "labels"), texts_of(metadata, "annotations")
        phase, reason = text_at(status, "phase") or "Pending", text_at(status, "reason")
        owner_uid, owner_kind, owner_api = controller_of(metadata)
        disrupted = condition_holds(status, "DisruptionTarget")
        turned_away = reason in _REJECTIONS or reason.startswith("OutOf")
        return cls(
            key=key_of(document),
            job=labels.get(JOB_LABEL, ""),
            owner=owner_uid,
            node=text_at(spec, "nodeName"),
            phase=phase,
            rejected=phase == "Failed" and turned_away and not disrupted,
            created=text_at(metadata, "creationTimestamp"),
            deleting="deletionTimestamp" in metadata,
            disrupted=disrupted,
            demand=demand_of(spec),
            asking=sum(any("/" in name for name in _limits(c)) for c in _every_container(spec)),
            resources=resources_of(spec),
            runs=tuple(_container_runs(status)),
            gates=tuple(text_at(gate, "name") for gate in objects_in(spec, "schedulingGates")),
            labels=labels,
            annotations={name: text for name, text in annotations.items() if name.startswith(OWN_DOMAIN)},
            index=completion_index(labels, annotations),
            sizing=sizing_of(document) if JOB_LABEL in labels else NO_SIZING,
            owner_kind=owner_kind,
            batch_job=owner_uid if owner_kind == "Job" and owner_api.startswith("batch/") else "",
            service_account=text_at(spec, "serviceAccountName"),
            ports=_named_ports(spec),
            seen_ns=seen_ns,
        )

    @property
    def over(self) -> bool:
        return self.phase in FINAL

    @property
    def emujob_uid(self) -> str:
        return self.labels.get(JOB_UID_LABEL, "")

    @property
    def work_uid(self) -> str:
        """The uid of the EmuJob or Job of its namespace that it claims to work for, else its own."""
        return work_uid(self.labels, self.batch_job) or self.key.uid

    @property
    def job_key(self) -> str:
        """The name of its work within its namespace (sharing_manager.store.entries.Entry)."""
        uid = work_uid(self.labels, self.batch_job)
        return f"{uid}/{self.index}" if uid else self.key.uid

    @property
    def uses_emugpu(self) -> bool:
        """Whether it holds devices or a host slot."""
        return any(name.startswith(OWN_DOMAIN) for name in self.resources)

    @property
    def devices(self) -> int:
        """Devices of emugpu, or shares of them, that it holds on its node."""
        return sum(n for name, n in self.resources.items() if name.startswith(OWN_DOMAIN) and name != HOST_RESOURCE)

    @property
    def allocation(self) -> str:
        """The annotation with the allocation that a job-level scheduler gave it (emulator_runtime/node/allocation.py)."""
        return self.annotations.get(ALLOCATION, "")

    @property
    def started(self) -> str:
        """When its first container started; empty before."""
        return min((run.started for run in self.runs if run.started), default="")

    @property
    def might_be_manager(self) -> bool:
        """Whether it looks like a node's sharing manager. Users can create such a pod in their own namespaces: the caller
        must know in which namespace emugpu's own pods are."""
        labelled = all(self.labels.get(name) == text for name, text in _MANAGER_LABELS.items())
        account = self.service_account.endswith(_MANAGER_ACCOUNT)
        return labelled and account and self.owner_kind == "DaemonSet" and MANAGER in self.ports and bool(self.node)


def controller_of(metadata: Mapping[str, Any]) -> tuple[str, str, str]:
    """Uid, kind and apiVersion of an object's controller; all empty where it has none."""
    owners = [owner for owner in objects_in(metadata, "ownerReferences") if owner.get("controller") is True]
    owner = owners[0] if owners else {}
    return text_at(owner, "uid"), text_at(owner, "kind"), text_at(owner, "apiVersion")


# --- resources --------------------------------------------------------------------------------------------------------------


def demand_of(pod_spec: Mapping[str, Any]) -> Demand:
    """Of a pod's containers, without init containers."""
    limits = {text_at(c, "name"): _own(_limits(c)) for c in objects_in(pod_spec, "containers")}
    asking = {name: own for name, own in limits.items() if own}
    return Demand(tuple(asking), sum(n for own in asking.values() for name, n in own.items() if name != HOST_RESOURCE))


def resources_of(pod_spec: Mapping[str, Any]) -> dict[str, int]:
    """Extended resources that a pod holds on its node, counted as Kubernetes does.

    Containers run beside each other, init containers one after the other before them: containers with 1 and 2 devices and init
    containers with 4 and 1 hold max(1 + 2, 4, 1) = 4.
    """
    beside, before = ([_limits(c) for c in objects_in(pod_spec, kind)] for kind in ("containers", "initContainers"))
    names = {name for limits in (*beside, *before) for name in limits if "/" in name}
    held = {
        name: max(sum(each.get(name, 0) for each in beside), *(each.get(name, 0) for each in before), 0)
        for name in sorted(names)
    }
    return {name: amount for name, amount in held.items() if amount}


def _every_container(pod_spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [c for kind in ("containers", "initContainers") for c in objects_in(pod_spec, kind)]


def _limits(container: Mapping[str, Any]) -> dict[str, int]:
    """Limits of extended resources; other amounts, which need not be whole numbers, are left out."""
    limits = object_at(container, "resources", "limits")
    return {
        name: int(str(n)) if str(n).isdecimal() else 0 for name, n in limits.items() if "/" in name and str(n) != "0"
    }


def _own(limits: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in limits.items() if name.startswith(OWN_DOMAIN)}


def sizing_of(pod: Mapping[str, Any]) -> Sizing:
    """Of the container that the operator made; an admission webhook may have added others."""
    containers = [c for c in objects_in(object_at(pod, "spec"), "containers") if text_at(c, "name") == CONTAINER]
    resources = object_at(containers[0], "resources") if containers else {}
    requests, limits = (_resizable(texts_of(resources, kind)) for kind in ("requests", "limits"))
    generation, status = whole_at(object_at(pod, "metadata"), "generation"), object_at(pod, "status")
    # 0: no kubelet has seen the pod yet, or the kubelet is too old to report it.
    observed = whole_at(status, "observedGeneration") or generation
    return Sizing(requests, limits, _resize_trouble(status), observed >= generation)


def _resizable(amounts: Mapping[str, str]) -> dict[str, Fraction]:
    return exact_amounts({name: amount for name, amount in amounts.items() if name in RESIZABLE})


def _resize_trouble(status: Mapping[str, Any]) -> tuple[str, str]:
    for kind, default in _RESIZE_CONDITIONS.items():
        condition = condition_of(status, kind)
        if condition.get("status") == "True":
            return text_at(condition, "reason") or default, text_at(condition, "message")
    return "", ""


# --- containers -------------------------------------------------------------------------------------------------------------


def _container_runs(status: Mapping[str, Any]) -> Iterator[ContainerRun]:
    """Of each container the previous start, if any, and the present one."""
    for container in objects_in(status, "containerStatuses"):
        for member in ("lastState", "state"):
            for kind in ("running", "terminated"):
                state = object_at(container, member, kind)
                started, finished = text_at(state, "startedAt"), text_at(state, "finishedAt")
                if started:
                    code, reason = whole_at(state, "exitCode"), text_at(state, "reason")
                    message = text_at(state, "message")
                    yield ContainerRun(text_at(container, "name"), started, finished, code, reason, message)


def _named_ports(pod_spec: Mapping[str, Any]) -> dict[str, int]:
    ports: Iterable[Mapping[str, Any]] = (p for c in objects_in(pod_spec, "containers") for p in objects_in(c, "ports"))
    return {text_at(port, "name"): whole_at(port, "containerPort") for port in ports if text_at(port, "name")}
