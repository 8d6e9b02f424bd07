"""What the programs of this package need of an API server: the kinds of objects, the protocol `Api`, and its errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from emulator_runtime.domain.errors import ClusterError

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of objects, and how its URLs are made (Kubernetes documentation, "Kubernetes API Concepts")."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    subresource: str = ""

    @property
    def api_version(self) -> str:
        """As `apiVersion` of an object: `v1`, `batch/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def status(self) -> Resource:
        """The status subresource."""
        return replace(self, subresource="status")

    def path(self, namespace: str = "", name: str = "") -> str:
        """The path of one object, or of a list: of all namespaces where `namespace` is empty or `*`.

        `JOB.path("lab", "a")` is `/apis/batch/v1/namespaces/lab/jobs/a`.
        """
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace not in ("", "*") and self.namespaced:
            parts += ["namespaces", namespace]
        return "/" + "/".join([*parts, self.plural, *filter(None, (name, name and self.subresource))])


NODE = Resource("", "v1", "Node", "nodes", namespaced=False)
NAMESPACE = Resource("", "v1", "Namespace", "namespaces", namespaced=False)
POD = Resource("", "v1", "Pod", "pods")
POD_BINDING = replace(POD, kind="Binding", subresource="binding")
POD_SIZE = replace(POD, subresource="resize")
"""CPUs and memory that the containers of a running pod request (Kubernetes API, pods/resize, stable since 1.35)."""
SERVICE = Resource("", "v1", "Service", "services")
CONFIG_MAP = Resource("", "v1", "ConfigMap", "configmaps")
EVENT = Resource("events.k8s.io", "v1", "Event", "events")
JOB = Resource("batch", "v1", "Job", "jobs")
LEASE = Resource("coordination.k8s.io", "v1", "Lease", "leases")
POOL = Resource("emugpu.dev", "v1alpha1", "EmuGPUPool", "emugpupools", namespaced=False)
EMUJOB = Resource("emugpu.dev", "v1alpha1", "EmuJob", "emujobs")
EXPERIMENT = Resource("emugpu.dev", "v1alpha1", "SchedulingExperiment", "schedulingexperiments")
TOKEN_REVIEW = Resource("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", namespaced=False)
ACCESS_REVIEW = Resource("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False)
CRD = Resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False)


class NotThereError(ClusterError):
    """The object, or the requested version of it, does not exist; a retry gives the same answer."""

    code = "not-there"


class ConflictError(ClusterError):
    """The object exists already, or has another version than the request names; read it again before a retry."""

    code = "conflict"


class ForbiddenError(ClusterError):
    """The API server refuses the request, or does not know the user; a retry gives the same answer."""

    code = "forbidden"


class ApiAwayError(ClusterError):
    """The API server can't be reached, or is too busy to answer."""

    code = "api-away"
    retry_helps = True


class Api(Protocol):
    """What the programs of this package need of an API server.

    A list or watch covers all namespaces where `namespace` is empty or `*`; `labels` and `fields` are selectors in Kubernetes'
    syntax, such as `a=b,!c` (Kubernetes documentation, "Labels and Selectors").
    """

    async def list(
        self, resource: Resource, *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> tuple[str, list[Json]]:
        """The resourceVersion of the list, and all objects."""
        ...

    def watch(
        self, resource: Resource, version: str, *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> AsyncIterator[tuple[str, Json]]:
        """Changes since `version`, for WATCH_S at most: ADDED, MODIFIED or DELETED with the object.

        Raises NotThereError where the API server has forgotten the version (410 Gone): list again.
        """
        ...

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        """The object as it is now."""
        ...

    async def text(self, path: str) -> str:
        """The body of a GET of this path, such as /metrics through a pod's proxy."""
        ...

    async def apply(self, resource: Resource, name: str, document: Json, manager: str) -> Json:
        """Server-side apply with force; returns the object afterwards. A namespaced object names its namespace itself."""
        ...

    async def patch(self, resource: Resource, name: str, document: Json, manager: str) -> Json:
        """Merge these members into the object (null removes one); returns the object afterwards.

        A uid or resourceVersion in the metadata is a precondition. In objects of a built-in kind containers are merged by
        name (strategic merge patch), as kubectl does.
        """
        ...

    async def bind(self, pod: str, namespace: str, uid: str, node: str) -> None:
        """Bind the pod with this uid to a node. Raises ConflictError where it has a node, or another uid."""
        ...

    async def create(self, resource: Resource, document: Json, manager: str = "") -> Json:
        """Create; returns the object afterwards. A namespaced object names its namespace itself."""
        ...

    async def replace(self, resource: Resource, document: Json) -> Json:
        """Replace the version that the document names; returns the object afterwards."""
        ...

    async def delete(self, resource: Resource, name: str, namespace: str = "", *, uid: str = "") -> None:
        """Delete; no error where the object does not exist.

        With `uid` only the object with this uid, which then stays until its dependents are gone (foreground deletion).
        """
        ...

    async def close(self) -> None:
        """Close the connections; nothing else may be called afterwards."""
        ...


def selector_of(labels: Mapping[str, str]) -> str:
    """The selector of objects that have all these labels: `{"a": "b", "c": "d"}` is `a=b,c=d`."""
    return ",".join(f"{name}={value}" for name, value in labels.items())


ON_NODES = "spec.nodeName!="
"""Field selector of pods that are bound to a node."""


def applied(resource: Resource, name: str, uid: str, **members: Any) -> Json:
    """An object to apply: what it is, which one (by uid), and the given members."""
    metadata = {"name": name, **({"uid": uid} if uid else {}), **members.pop("metadata", {})}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **members}
