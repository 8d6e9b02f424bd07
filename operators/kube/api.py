"""What the programs of this package need of an API server: the kinds of objects, the protocol `Api`, and its errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

from lightkube.core.resource import ApiInfo, NamespacedSubResource, ResourceDef
from lightkube.generic_resource import Generic, create_global_resource, create_namespaced_resource
from lightkube.operators import exists, not_equal

from emulator_runtime.domain.errors import ClusterError

NODE = create_global_resource("", "v1", "Node", "nodes")
NAMESPACE = create_global_resource("", "v1", "Namespace", "namespaces")
POD = create_namespaced_resource("", "v1", "Pod", "pods")
POOL = create_global_resource("emugpu.dev", "v1alpha1", "EmuGPUPool", "emugpupools")
EVENT = create_namespaced_resource("events.k8s.io", "v1", "Event", "events")
EMUJOB = create_namespaced_resource("emugpu.dev", "v1alpha1", "EmuJob", "emujobs")
EXPERIMENT = create_namespaced_resource("emugpu.dev", "v1alpha1", "SchedulingExperiment", "schedulingexperiments")
JOB = create_namespaced_resource("batch", "v1", "Job", "jobs")
SERVICE = create_namespaced_resource("", "v1", "Service", "services")
LEASE = create_namespaced_resource("coordination.k8s.io", "v1", "Lease", "leases")
TOKEN_REVIEW = create_global_resource("authentication.k8s.io", "v1", "TokenReview", "tokenreviews")
ACCESS_REVIEW = create_global_resource("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews")
CRD = create_global_resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions")
CONFIG_MAP = create_namespaced_resource("", "v1", "ConfigMap", "configmaps")


class Binding(NamespacedSubResource, Generic):  # type: ignore[misc]
    """A pod's node, set once (Kubernetes API, core/v1 Binding)."""

    _api_info = ApiInfo(
        resource=ResourceDef("", "v1", "Binding"),
        parent=POD._api_info.resource,
        plural="pods",
        verbs=["post"],
        action="binding",
    )


class Resize(NamespacedSubResource, Generic):  # type: ignore[misc]
    """The CPUs and memory that a pod's containers ask for, while it runs (Kubernetes API, pods/resize, stable since 1.35)."""

    _api_info = ApiInfo(
        resource=POD._api_info.resource,
        parent=POD._api_info.resource,
        plural="pods",
        verbs=["patch"],
        action="resize",
    )


POD_SIZE: type[Any] = Resize

Json = dict[str, Any]


class NotThereError(ClusterError):
    """The object (or the version of it that was meant) is gone; asking again gives the same answer."""

    code = "not-there"


class ConflictError(ClusterError):
    """Somebody else was faster: the object is there already, or is not the version that was meant; look again first."""

    code = "conflict"


class ForbiddenError(ClusterError):
    """The API server doesn't know who asks, or doesn't allow it; asking again gives the same answer."""

    code = "forbidden"


class ApiAwayError(ClusterError):
    """The API server can't be reached, or is too busy to answer."""

    code = "api-away"
    retry_helps = True


class Api(Protocol):
    """What the controllers need of an API server; resources are the constants of this module."""

    async def list(self, resource: type[Any], **options: Any) -> tuple[str, list[Json]]:
        """All objects, with the version of the list."""
        ...

    def watch(self, resource: type[Any], version: str, **options: Any) -> AsyncIterator[tuple[str, Json]]:
        """Changes since `version`, for WATCH_S at most: ADDED, MODIFIED or DELETED with the object."""
        ...

    async def get(self, resource: type[Any], name: str, namespace: str = "") -> Json:
        """The object as it is now."""
        ...

    async def text(self, path: str) -> str:
        """What a GET of this path answers, such as /metrics through a pod's proxy."""
        ...

    async def apply(self, resource: type[Any], name: str, document: Json, manager: str) -> Json:
        """Server-side apply with force; the object as it is then. A namespaced object names its namespace itself."""
        ...

    async def patch(self, resource: type[Any], name: str, document: Json, manager: str) -> Json:
        """Merge these members into the object (null removes one); the object as it is then.

        A uid or version in the metadata is a precondition. Containers of a built-in kind are merged by name, as kubectl does.
        """
        ...

    async def bind(self, pod: str, namespace: str, uid: str, node: str) -> None:
        """Give the pod with this uid, which no node has yet, to a node."""
        ...

    async def create(self, resource: type[Any], document: Json, manager: str = "") -> Json:
        """Create; the object as it is then. A namespaced object names its namespace itself."""
        ...

    async def replace(self, resource: type[Any], document: Json) -> Json:
        """Put this in the place of the version that the document names; the object as it is then."""
        ...

    async def delete(self, resource: type[Any], name: str, namespace: str = "", *, uid: str = "") -> None:
        """Delete; no error where it's gone already.

        With `uid` only the object with this one, which stays until all that it owns is gone (foreground).
        """
        ...


def everywhere(label: str = "") -> Json:
    """Options of list and watch: in all namespaces, and only what has this label."""
    return {"namespace": "*", **({"labels": {label: exists()}} if label else {})}


def on_nodes() -> Json:
    """Options of list and watch: pods of all namespaces that have a node."""
    return {"namespace": "*", "fields": {"spec.nodeName": not_equal("")}}


def applied(resource: type[Any], name: str, uid: str, **members: Any) -> Json:
    """An object to apply: what it is, which one (by uid), and the given members."""
    info = resource._api_info.resource
    metadata = {"name": name, **({"uid": uid} if uid else {}), **members.pop("metadata", {})}
    return {"apiVersion": info.api_version, "kind": info.kind, "metadata": metadata, **members}


def plural_of(resource: type[Any]) -> str:
    """The name of a kind of objects, as in URLs and as kubectl says it."""
    return str(resource._api_info.plural)
