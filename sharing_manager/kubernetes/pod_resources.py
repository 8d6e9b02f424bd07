"""What the kubelet says about who holds which device ids: the truth by which grants of vanished pods are found.

No answer is never an empty answer: while the kubelet restarts, no pod has lost its devices.

Source: Kubernetes documentation, "Device Plugins: Monitoring device plugin resources"; the service's Unix socket is
/var/lib/kubelet/pod-resources/kubelet.sock.
"""

from __future__ import annotations

from pathlib import Path

import grpc

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.domain.units import MIB
from sharing_manager.identity import PodAllocation
from sharing_manager.kubernetes.api import podresources_pb2 as api

LIST_METHOD = "/v1.PodResourcesLister/List"
ANSWER_S = 2.0
_OPTIONS = (
    ("grpc.max_receive_message_length", 16 * MIB),  # the kubelet's own limit: podresources/constants.go
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),  # below the time between two questions: each of them finds out anew
)


class KubeletError(ClusterError):
    """The kubelet gave no answer; it may be restarting."""

    retry_helps = True


class PodResources:
    """A client of the kubelet; it connects when asked, and again by itself after the kubelet's restart."""

    def __init__(self, socket_path: Path) -> None:
        self._path = socket_path
        self._channel = grpc.insecure_channel(f"unix:{socket_path}", options=_OPTIONS)
        self._list = self._channel.unary_unary(
            LIST_METHOD,
            request_serializer=api.ListPodResourcesRequest.SerializeToString,
            response_deserializer=api.ListPodResourcesResponse.FromString,
        )

    def list(self) -> list[PodAllocation]:
        """All pods of the node with what they hold. Raises KubeletError where there is no answer within 2 seconds."""
        try:
            answer = self._list(api.ListPodResourcesRequest(), timeout=ANSWER_S)
        except grpc.RpcError as error:
            why = f"{error.code().name}: {error.details()}"
            fix = "is the kubelet running, and its directory pod-resources mounted?"
            raise KubeletError(
                f"{self._path}: the kubelet doesn't say who holds which devices: {why}; {fix}"
            ) from error
        return [allocation for pod in answer.pod_resources for allocation in _allocations(pod)]

    def close(self) -> None:
        self._channel.close()


def _allocations(pod: api.PodResources) -> list[PodAllocation]:
    """One per container and resource; a pod that holds nothing appears too, as one without resource.

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
