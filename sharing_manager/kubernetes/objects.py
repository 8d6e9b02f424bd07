"""Typed facts from Kubernetes objects. JSON is parsed here, once, as far as the manager needs it.

Sources: Kubernetes API v1: Node, Pod, ContainerStatus; API concepts (watch events, bookmarks, Status); labels of the Job
controller: "Well-known labels", batch.kubernetes.io/controller-uid and batch.kubernetes.io/job-completion-index.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from emulator_runtime.node.allocation import ALLOCATION_ANNOTATION
from emulator_runtime.node.layout import INVENTORY_ANNOTATION, JOB_LABEL, completion_index, work_uid
from sharing_manager.grants.identity import PodIdentity
from sharing_manager.kubernetes.api_server import ApiServerError
from sharing_manager.kubernetes.cgroup import PodCgroup

_MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
"""On the mirror pod of a static pod: the UID in the name of the static pod's cgroup. See `_cgroup_uid`."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The parts of its Node that the manager reads. `inventory` is the annotation's text, None if there is none."""

    name: str
    uid: str
    inventory: str | None


@dataclass(frozen=True, slots=True)
class AllocatedPod:
    """A pod and the allocation that a scheduler has written on it as an annotation; `allocation` is None if there is none.
    `name` is `<namespace>/<name>`."""

    uid: str
    name: str
    allocation: str | None


@dataclass(frozen=True, slots=True)
class Listing:
    """A list of objects with the version to watch from. `next_page` is "" on the last page."""

    items: tuple[object, ...]
    resource_version: str
    next_page: str


@dataclass(frozen=True, slots=True)
class Change:
    """One line of a watch. `kind`: ADDED, MODIFIED, DELETED or BOOKMARK. (An ERROR is raised instead.)"""

    kind: str
    item: object
    resource_version: str


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """A container of a pod's spec. `listed`: the kubelet's PodResources service lists it (all but ordinary init containers).

    `requests_resource`: it requests an extended resource, which may be emulated GPUs.
    """

    name: str
    listed: bool
    requests_resource: bool = False


@dataclass(frozen=True, slots=True)
class PodFacts:
    """One pod. `started` maps container ids to containers, as far as the kubelet has reported them. `cgroup_uid`: the UID in
    the name of the pod's cgroup, which for a static pod isn't `uid`. `allocated`: None for a pod that belongs to no EmuJob."""

    uid: str
    namespace: str
    name: str
    job_key: str
    containers: tuple[ContainerFacts, ...]
    started: dict[str, ContainerFacts]
    cgroup_uid: str
    allocated: AllocatedPod | None = None

    def container(self, container_id: str) -> ContainerFacts | None:
        """The container with this id; a pod's only container is known without a report. None if it isn't known yet."""
        if container_id in self.started:
            return self.started[container_id]
        return self.containers[0] if len(self.containers) == 1 and container_id else None

    def identity(self, cgroup: PodCgroup) -> PodIdentity:
        """The identity of a process of this pod. The container's name is "" if it isn't known."""
        container = self.container(cgroup.container_id)
        return PodIdentity(
            pod_uid=self.uid,
            container_id=cgroup.container_id,
            namespace=self.namespace,
            pod=self.name,
            container=container.name if container else "",
            job_key=self._job_key(container),
            init_container=container is not None and not container.listed,
        )

    def _job_key(self, container: ContainerFacts | None) -> str:
        """If several containers of the pod request devices, each of them is a job of its own."""
        if container is None or sum(each.requests_resource for each in self.containers) < 2:
            return self.job_key
        of_job = self.job_key != self.uid
        return f"{self.job_key if of_job else f'{self.namespace}/{self.uid}'}/{container.name}"


def listing(document: object) -> Listing:
    """Raises ApiServerError for a document that isn't a list."""
    items = _at(document, "items")
    if not isinstance(items, list) and not (items is None and _text(document, "metadata", "resourceVersion")):
        raise ApiServerError("API server: the answer to a list has no items; is there a proxy in between?")
    version = _text(document, "metadata", "resourceVersion")
    return Listing(tuple(items or ()), version, _text(document, "metadata", "continue"))


def change(document: object) -> Change:
    """Raises ApiServerError for an ERROR (status 410: the version is too old, list again) and for an invalid document."""
    kind, item = _text(document, "type"), _at(document, "object")
    if kind == "ERROR":
        code = _at(item, "code")
        status = code if isinstance(code, int) else 0
        raise ApiServerError(f"API server: the watch ended: {_text(item, 'message') or 'no reason given'}", status)
    if kind not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
        raise ApiServerError(f"API server: a watch event has an unknown type: {kind or document!r:.60}")
    return Change(kind, item, _required(item, "metadata", "resourceVersion"))


def node(item: object) -> NodeFacts:
    """Raises ApiServerError for a Node without name or UID."""
    inventory = _at(item, "metadata", "annotations", INVENTORY_ANNOTATION)
    return NodeFacts(
        name=_required(item, "metadata", "name"),
        uid=_required(item, "metadata", "uid"),
        inventory=inventory if isinstance(inventory, str) else None,
    )


def allocated_pod(item: object) -> AllocatedPod:
    """Raises ApiServerError for a Pod without name, namespace or UID."""
    allocation = _at(item, "metadata", "annotations", ALLOCATION_ANNOTATION)
    return AllocatedPod(
        uid=_required(item, "metadata", "uid"),
        name=f"{_required(item, 'metadata', 'namespace')}/{_required(item, 'metadata', 'name')}",
        allocation=allocation if isinstance(allocation, str) else None,
    )


def pod(item: object) -> PodFacts:
    """Raises ApiServerError for a Pod without name, namespace or UID."""
    uid = _required(item, "metadata", "uid")
    containers = tuple(_containers(item))
    by_name = {container.name: container for container in containers}
    return PodFacts(
        uid=uid,
        namespace=_required(item, "metadata", "namespace"),
        name=_required(item, "metadata", "name"),
        job_key=_job_key(item) or uid,
        containers=containers,
        started={id_: by_name[name] for id_, name in _started(item) if name in by_name},
        cgroup_uid=_cgroup_uid(item, uid),
        allocated=allocated_pod(item) if _text(item, "metadata", "labels", JOB_LABEL) else None,
    )


def _cgroup_uid(item: object, uid: str) -> str:
    """The UID in the name of the pod's cgroup.

    Any user who may create pods may set the mirror annotation, with the UID of another namespace's pod. The API server only
    requires spec.nodeName with it, and that it never changes (kubernetes/kubernetes#45775); NodeRestriction restricts
    kubelets only. So the annotation counts only if the kubelet has reported a container of the pod: it never runs a pod that
    was created with the annotation, the API server clears the status of a new pod, and users may not write pods/status.
    """
    reported = next(_started(item), None) is not None
    return (_text(item, "metadata", "annotations", _MIRROR_ANNOTATION) if reported else "") or uid


def _containers(item: object) -> Iterator[ContainerFacts]:
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for spec in _items(item, "spec", kind):
            sidecar = _text(spec, "restartPolicy") == "Always"
            limits = _at(spec, "resources", "limits")
            requests_resource = isinstance(limits, dict) and any("/" in name for name in limits)
            yield ContainerFacts(
                _text(spec, "name"), listed=kind == "containers" or sidecar, requests_resource=requests_resource
            )


def _started(item: object) -> Iterator[tuple[str, str]]:
    """Container ids (`<runtime>://<id>` in the API, here without the runtime) with the names of their containers."""
    for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for status in _items(item, "status", kind):
            _, separator, container_id = _text(status, "containerID").partition("://")
            if separator:
                yield container_id, _text(status, "name")


def _job_key(item: object) -> str:
    """Empty for a pod that belongs to no job. The namespace, which the API server guarantees, comes first: the pod's creator can
    choose the rest."""
    labels, annotations = (_texts(item, "metadata", name) for name in ("labels", "annotations"))
    uid = work_uid(labels, _batch_job_uid(item))
    return f"{_required(item, 'metadata', 'namespace')}/{uid}/{completion_index(labels, annotations)}" if uid else ""


def _batch_job_uid(item: object) -> str:
    """The uid of the batch Job that controls this pod. A kind Job of another API group doesn't count: its pods have no common
    progress."""
    owners = _items(item, "metadata", "ownerReferences")
    jobs = (o for o in owners if _text(o, "kind") == "Job" and _text(o, "apiVersion").startswith("batch/"))
    return next((_text(job, "uid") for job in jobs if _at(job, "controller") is True), "")


def _at(value: object, *path: str) -> object:
    """The value at this path of nested JSON objects; None if the path doesn't exist."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _text(value: object, *path: str) -> str:
    text = _at(value, *path)
    return text if isinstance(text, str) else ""


def _texts(value: object, *path: str) -> dict[str, str]:
    texts = _at(value, *path)
    return {key: text for key, text in texts.items() if isinstance(text, str)} if isinstance(texts, dict) else {}


def _items(value: object, *path: str) -> list[object]:
    items = _at(value, *path)
    return items if isinstance(items, list) else []


def _required(value: object, *path: str) -> str:
    text = _text(value, *path)
    if not text:
        raise ApiServerError(f"API server: an object has no {'.'.join(path)}")
    return text
