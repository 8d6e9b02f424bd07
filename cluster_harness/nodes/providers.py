"""Where a cluster's nodes come from, behind one interface: kind with its stock image or ours, or an existing cluster."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cluster_harness import versions
from cluster_harness.engine import Engine
from cluster_harness.images import Image
from cluster_harness.nodes.kind import Kind
from cluster_harness.nodes.kubectl import Kubectl
from cluster_harness.offline import node_network
from cluster_harness.offline.image_commit import NodeImages
from cluster_harness.product.chart import worker_labels
from cluster_harness.programs import Clients
from cluster_harness.request.spec import ClusterSpec
from cluster_harness.shell import Shell
from cluster_harness.state import ClusterDirectory
from cluster_harness.steps import Progress, Report, Steps
from emulator_runtime.domain.errors import ClusterError

_REGISTRY_TIMEOUT_S = 20.0
_CONNECT_TIMEOUT_S = 5.0
_REGISTRY = ("registry-1.docker.io", 443)
_PULL_TIMEOUT_S = 1200.0
_READY_TIMEOUT_S = 300.0


class Provider(Protocol):
    """Creates, finds and deletes the nodes of a cluster. All methods raise ClusterError."""

    @property
    def kubectl(self) -> Kubectl: ...

    def exists(self) -> bool: ...

    def create(self, spec: ClusterSpec, steps: Steps) -> None: ...

    def load(self, images: Sequence[Image], report: Report) -> None: ...

    def delete(self) -> None: ...


def has_stock_image(engine: Engine | None) -> bool:
    return engine is not None and engine.has_image(versions.STOCK_NODE_IMAGE)


def registry_answers(shell: Shell) -> bool:
    """Whether a registry gives kind's stock node image, asked for 20 s at most; `docker manifest` needs no engine.

    Without a docker client: whether Docker Hub can be connected to."""
    if shutil.which("docker", path=shell.environ.get("PATH")) is None:
        return _connects(*_REGISTRY)
    try:
        return shell.attempt(
            "docker", "manifest", "inspect", versions.STOCK_NODE_IMAGE, timeout_s=_REGISTRY_TIMEOUT_S
        ).ok
    except ClusterError:  # no answer in time
        return False


def _connects(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), _CONNECT_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def pull_stock_image(engine: Engine, steps: Steps) -> NodeImages:
    """kind's own node image, pulled unless the engine has it. Raises ClusterError."""
    stock = versions.STOCK_NODE_IMAGE
    if not engine.has_image(stock):
        with steps.step(f"pull {stock.partition('@')[0]}") as report:
            layers = PulledLayers(report)
            engine.shell.stream("docker", "pull", stock, on_line=layers.read, timeout_s=_PULL_TIMEOUT_S)
    return NodeImages(stock, stock)


class PulledLayers:
    """Counts the layers in the output of `docker pull`: `LAYER: Pulling fs layer`, later `LAYER: Pull complete`."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._done: dict[str, bool] = {}

    def read(self, line: str) -> None:
        layer, _, state = line.partition(": ")
        if state in ("Pulling fs layer", "Waiting", "Pull complete", "Already exists"):
            self._done[layer] = state in ("Pull complete", "Already exists")
            self._report(Progress(sum(self._done.values()), len(self._done), "layers"))


@dataclass(frozen=True)
class KindProvider:
    """Nodes are containers of this machine's Docker engine."""

    kind: Kind
    directory: ClusterDirectory
    kubectl: Kubectl

    def exists(self) -> bool:
        return self.kind.exists()

    def create(self, spec: ClusterSpec, steps: Steps) -> None:
        with steps.step(f"create {spec.workers + 1} nodes with kind"):
            self.kind.create(worker_labels(spec), self.directory.path)
        if self.kind.on_the_spot:
            with steps.step("routes and DNS"):
                node_network.connect(self.kubectl, self.kind.engine.shell, spec.workers + 1)
        with steps.step("wait for the nodes") as report:
            self.kubectl.wait("nodes ready", lambda: self._not_ready(spec.workers + 1, report), _READY_TIMEOUT_S)
            self.kubectl("-n", "kube-system", "rollout", "status", "deployment/coredns", timeout_s=_READY_TIMEOUT_S)

    def _not_ready(self, count: int, report: Report) -> str | None:
        nodes = self.kubectl.nodes()
        ready = sum(node.ready for node in nodes)
        report(Progress(ready, count, "nodes are ready"))
        return None if ready == count else f"{ready} of {count} nodes are ready"

    def load(self, images: Sequence[Image], report: Report) -> None:
        self.kind.load([image.archive for image in images], self.kind.node_names(), report)

    def delete(self) -> None:
        self.kind.delete(self.directory.path)


@dataclass(frozen=True)
class ExistingCluster:
    """A cluster that emugpu neither creates nor deletes: only the chart, its namespace and our labels are added and removed."""

    kubectl: Kubectl

    def exists(self) -> bool:
        self.kubectl("version", "-o", "json", timeout_s=30)
        return True

    def create(self, spec: ClusterSpec, steps: Steps) -> None:
        raise ClusterError(f"{self.kubectl.kubeconfig}: is an existing cluster; nothing to create for {spec.name}")

    def load(self, images: Sequence[Image], report: Report) -> None:
        names = ", ".join(image.reference for image in images)
        raise ClusterError(
            f"{names}: nodes of an existing cluster pull images themselves; push it to their registry, give --image"
        )

    def delete(self) -> None:
        return


def existing_cluster(clients: Clients, shell: Shell, kubeconfig: Path, context: str) -> ExistingCluster:
    """Raises ClusterError where there is no such file."""
    if not kubeconfig.exists():
        raise ClusterError(f"{kubeconfig}: there is no such kubeconfig; give another with --kubeconfig")
    return ExistingCluster(Kubectl(shell, clients.kubectl, kubeconfig, context))
