"""Finds the pod of a process from its control groups. A container can't choose these, unlike the contents of its
messages.

The kubelet makes a cgroup per pod, and the container runtime makes one per container below it. Their names depend on the
driver and the runtime. The path above them depends on where the kubelet runs (kind: in a container) and on the cgroup
namespace of the reader:

| driver, runtime | path |
|---|---|
| cgroupfs | /kubepods/burstable/pod<uid>/<container id>, with CRI-O crio-<container id> |
| systemd | /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid with _>.slice/cri-containerd-<id>.scope |
| kubelet systemd, containerd cgroupfs | /system.slice/containerd.service/kubepods-burstable-pod<uid>.slice:cri-containerd:<id> |
| read from another container's cgroup namespace | /../../pod<uid>/<container id> |

Sources: proc_pid_cgroup(5), cgroup_namespaces(7); kubelet pkg/kubelet/cm/cgroup_manager_linux.go and
pod_container_manager_linux.go (names of pods' cgroups); containerd internal/cri/server (cgroupsPath).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32}"  # a static pod's UID is a hash without dashes
_ID = r"[0-9a-f]{64}"
_POD = re.compile(rf"(?:.*kubepods-(?:burstable-|besteffort-)?)?pod({_UID})(?:\.slice)?(?::[^:/]+:({_ID}))?")
_CONTAINER = re.compile(rf"(?:(?:cri-containerd|containerd|crio|docker|libpod)-)?({_ID})(?:\.scope)?")
_DELETED = " (deleted)"


@dataclass(frozen=True, slots=True)
class PodCgroup:
    """A pod's UID as the API server writes it, and the id of the container in it ("" for the pod's own cgroup)."""

    pod_uid: str
    container_id: str


def parse_all(text: str) -> tuple[PodCgroup, ...]:
    """All pods in the text of a process's /proc/<pid>/cgroup, outermost first; none for a process outside of all pods.

    A container may create cgroups below its own, but none above it.
    There are several if a whole node runs inside a pod of another cluster (kind in a CI pod), or if a container created
    misleading names. In both cases the first one that this cluster knows is the right one.
    """
    pods: dict[str, PodCgroup] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)  # hierarchy, controllers, path; the path may contain colons
        for pod in _pods(parts[2]) if len(parts) == 3 else ():
            earlier = pods.get(pod.pod_uid)
            if earlier is None or not earlier.container_id:
                pods[pod.pod_uid] = pod
    return tuple(pods.values())


def _pods(path: str) -> Iterator[PodCgroup]:
    components = path.removesuffix(_DELETED).split("/")
    for component, below in zip(components, [*components[1:], ""], strict=True):
        pod = _POD.fullmatch(component)
        if pod is not None:
            container = _CONTAINER.fullmatch(below)
            container_id = pod[2] or (container[1] if container is not None else "")
            yield PodCgroup(pod[1].replace("_", "-"), container_id)
