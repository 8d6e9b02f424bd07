"""The kubelet's list of pods and their device ids, from which the grants of deleted pods are found.

A failed request is never taken for an empty list: while the kubelet restarts, no pod has lost its devices. Even a
successful list may be wrong: a kubelet that restarted while the API server is down doesn't know its pods yet, and lists
none. The manager's own pod runs whenever this code does, so a list without it is rejected.

Source: Kubernetes documentation, "Device Plugins: Monitoring device plugin resources"; the service's Unix socket is
/var/lib/kubelet/pod-resources/kubelet.sock.
"""

from __future__ import annotations

from pathlib import Path

import grpc

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.domain.units import MIB
from sharing_manager.grants.identity import PodAllocation
from sharing_manager.kubernetes.api import podresources_pb2 as api

LIST_METHOD = "/v1.PodResourcesLister/List"
ANSWER_S = 2.0
_OPTIONS = (
    ("grpc.max_receive_message_length", 16 * MIB),  # the kubelet's own limit: podresources/constants.go
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    # shorter than the interval of requests, so that each request tries to connect
    ("grpc.max_reconnect_backoff_ms", 2000),
)


class KubeletError(ClusterError):
    """The kubelet gave no answer, or one that can't be true. It may be restarting."""

    retry_helps = True


class PodResources:
    """A client of the kubelet. It connects at the first request, and reconnects after a restart of the kubelet.

    `own_pod` is the name of the pod that this process runs in. If it is "", every list is accepted.
    """

    def __init__(self, socket_path: Path, own_pod: str = "") -> None:
        self._path, self._own_pod = socket_path, own_pod
        self._channel = grpc.insecure_channel(f"unix:{socket_path}", options=_OPTIONS)
        self._list = self._channel.unary_unary(
            LIST_METHOD,
            request_serializer=api.ListPodResourcesRequest.SerializeToString,
            response_deserializer=api.ListPodResourcesResponse.FromString,
        )

    def list(self) -> list[PodAllocation]:
        """All pods of the node with their allocations. Raises KubeletError if there is no answer within 2 seconds, or if
        the answer lacks this process's own pod."""
        try:
            answer = self._list(api.ListPodResourcesRequest(), timeout=ANSWER_S)
        except grpc.RpcError as error:
            why = f"{error.code().name}: {error.details()}"
            fix = "is the kubelet running, and its directory pod-resources mounted?"
            raise KubeletError(f"{self._path}: the kubelet doesn't list the pods' devices: {why}; {fix}") from error
        pods = answer.pod_resources
        if self._own_pod and not any(pod.name == self._own_pod for pod in pods):
            fix = "it has restarted and waits for the API server, or EMUGPU_MANAGER_POD is wrong"
            raise KubeletError(
                f"{self._path}: the kubelet lists {len(pods)} pods, but not this manager's own, {self._own_pod}: {fix}"
            )
        return [allocation for pod in pods for allocation in _allocations(pod)]

    def close(self) -> None:
        self._channel.close()


def _allocations(pod: api.PodResources) -> list[PodAllocation]:
    """One allocation per container and resource. A pod without devices has one without a resource.

    The kubelet lists devices of one resource in several entries, one per NUMA node (podresources/server_v1.go).
    """
    held: dict[tuple[str, str], set[str]] = {}
    for container in pod.containers:
        for devices in container.devices:
            held.setdefault((container.name, devices.resource_name), set()).update(devices.device_ids)
    return [
        PodAllocation(pod.namespace, pod.name, container, resource, frozenset(ids))
        for (container, resource), ids in (held or {("", ""): set[str]()}).items()
    ]
