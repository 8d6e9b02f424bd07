"""The facts that `emugpu cluster status` shows, as plain data for the table and for JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from cluster_harness.nodes.kubectl import Kubectl
from cluster_harness.product.chart import NAMESPACE, POOL_LABEL
from cluster_harness.product.readiness import gpus_of, is_device, missing_gpus
from cluster_harness.state import ClusterState


@dataclass(frozen=True)
class NodeReport:
    """`gpus`: allocatable devices by resource name; `used`: devices that running or pending pods on the node request."""

    name: str
    ready: bool
    pool: str
    gpus: dict[str, int]
    used: dict[str, int]


@dataclass(frozen=True)
class ClusterReport:
    """`missing`: GPUs that are not offered yet, "" for none. `programs`: (ready, wanted) containers of each of emugpu's pods."""

    name: str
    way: str
    kubeconfig: str
    images: dict[str, str]
    nodes: list[NodeReport]
    programs: dict[str, tuple[int, int]]
    missing: str

    @property
    def healthy(self) -> bool:
        all_ready = all(node.ready for node in self.nodes)
        return all_ready and not self.missing and all(ready == wanted for ready, wanted in self.programs.values())


def report(state: ClusterState, kubectl: Kubectl) -> ClusterReport:
    """Queries the cluster. Raises ClusterError if it doesn't answer."""
    nodes = kubectl.nodes()
    pods = kubectl.get("pods", "--all-namespaces")["items"]
    used = devices_in_use(pods)
    rows = [
        NodeReport(node.name, node.ready, node.labels.get(POOL_LABEL, ""), gpus_of(node), dict(used.get(node.name, {})))
        for node in nodes
    ]
    own_pods = [pod for pod in pods if pod["metadata"]["namespace"] == NAMESPACE]
    way = "kind, node image built here" if state.on_the_spot else state.way
    missing = missing_gpus(state.spec, nodes) or ""
    return ClusterReport(state.spec.name, way, state.kubeconfig, state.images, rows, _programs(own_pods), missing)


def devices_in_use(pods: list[dict[str, Any]]) -> dict[str, Counter[str]]:
    """Emulated devices by node and resource that pods with a node hold, unless the pod has ended."""
    from operators.objects.pod import Pod  # its import of pydantic takes 0.2 s, and `cluster up` doesn't need it

    in_use: dict[str, Counter[str]] = {}
    for pod in (Pod.read(item) for item in pods):
        devices = {name: count for name, count in pod.resources.items() if is_device(name)}
        if pod.node and not pod.over and devices:
            in_use.setdefault(pod.node, Counter()).update(devices)
    return in_use


def _programs(pods: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    running = [pod for pod in pods if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")]
    return {pod["metadata"]["name"]: _ready(pod) for pod in running}


def _ready(pod: dict[str, Any]) -> tuple[int, int]:
    statuses = pod.get("status", {}).get("containerStatuses", ())
    return sum(bool(status.get("ready")) for status in statuses), len(pod["spec"]["containers"])
