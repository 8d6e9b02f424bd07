"""Three ways to a cluster behind one interface: kind with its own node image, kind with ours, or a cluster that is there."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cluster_harness import versions
from cluster_harness.cache import Cache, content_key
from cluster_harness.engine import Engine
from cluster_harness.images import Image
from cluster_harness.kind import Kind
from cluster_harness.kubectl import Kubectl
from cluster_harness.offline import node_network
from cluster_harness.offline.image_archive import reference_of
from cluster_harness.offline.image_commit import NodeImages
from cluster_harness.offline.node_image import node_images
from cluster_harness.product.chart import worker_labels
from cluster_harness.programs import Clients
from cluster_harness.request.spec import ClusterSpec
from cluster_harness.shell import Shell
from cluster_harness.state import ClusterDirectory
from cluster_harness.steps import Note, Steps
from emulator_runtime.domain.errors import ClusterError

_REGISTRY_TIMEOUT_S = 20.0
_PULL_TIMEOUT_S = 1200.0
_READY_TIMEOUT_S = 300.0


class Way(Protocol):
    """How nodes come to be. All methods raise ClusterError."""

    @property
    def kubectl(self) -> Kubectl: ...

    def is_there(self) -> bool: ...

    def create(self, spec: ClusterSpec, steps: Steps) -> None: ...

    def load(self, images: Sequence[Image], note: Note) -> None: ...

    def delete(self) -> None: ...


def obtain_node_images(cache: Cache, engine: Engine, shell: Shell, steps: Steps) -> tuple[NodeImages, bool]:
    """kind's own node image where the engine has it or a registry answers in 20 s, else ours; True: it is ours."""
    stock = versions.STOCK_NODE_IMAGE
    if not engine.has_image(stock):
        asked = _registry_answers(engine, stock)
        if asked:
            with steps.step(f"pull {stock.partition('@')[0]}"):
                engine.shell.run("docker", "pull", "--quiet", stock, timeout_s=_PULL_TIMEOUT_S)
        else:
            steps.say(f"no registry gives {stock.partition('@')[0]}: the node image is built here")
            return node_images(cache, engine, shell, steps), True
    return NodeImages(stock, stock), False


def _registry_answers(engine: Engine, reference: str) -> bool:
    try:
        return engine.shell.attempt("docker", "manifest", "inspect", reference, timeout_s=_REGISTRY_TIMEOUT_S).ok
    except ClusterError:  # no answer in time
        return False


@dataclass(frozen=True)
class KindWay:
    """Nodes are containers of this machine's engine."""

    kind: Kind
    directory: ClusterDirectory
    kubectl: Kubectl

    def is_there(self) -> bool:
        return self.kind.exists()

    def create(self, spec: ClusterSpec, steps: Steps) -> None:
        with steps.step(f"create {spec.workers + 1} nodes with kind"):
            self.kind.create(worker_labels(spec), self.directory.path)
        if self.kind.on_the_spot:
            with steps.step("routes and DNS"):
                node_network.connect(self.kubectl, self.kind.engine.shell, spec.workers + 1)
        with steps.step("wait for the nodes") as note:
            self.kubectl.wait("nodes ready", lambda: self._not_ready(spec.workers + 1, note), _READY_TIMEOUT_S)
            self.kubectl("-n", "kube-system", "rollout", "status", "deployment/coredns", timeout_s=_READY_TIMEOUT_S)

    def _not_ready(self, count: int, note: Note) -> str | None:
        nodes = self.kubectl.nodes()
        ready = sum(node.ready for node in nodes)
        note(f"{ready} of {count}")
        return None if ready == count else f"{ready} of {count} nodes are ready"

    def load(self, images: Sequence[Image], note: Note) -> None:
        self.kind.load([image.archive for image in images], self.kind.node_names(), note)

    def delete(self) -> None:
        self.kind.delete(self.directory.path)


@dataclass(frozen=True)
class ExistingWay:
    """Somebody else's cluster: never created or deleted, only the chart, its namespace and our labels come and go."""

    kubectl: Kubectl

    def is_there(self) -> bool:
        self.kubectl("version", "-o", "json", timeout_s=30)
        return True

    def create(self, spec: ClusterSpec, steps: Steps) -> None:
        raise ClusterError(f"{self.kubectl.kubeconfig}: is a cluster that exists; nothing to create for {spec.name}")

    def load(self, images: Sequence[Image], note: Note) -> None:
        names = ", ".join(image.reference for image in images)
        raise ClusterError(
            f"{names}: nodes of an existing cluster pull images themselves; push it to their registry, give --image"
        )

    def delete(self) -> None:
        return


def existing_way(clients: Clients, shell: Shell, kubeconfig: Path, context: str) -> ExistingWay:
    """Raises ClusterError where there is no such file."""
    if not kubeconfig.exists():
        raise ClusterError(f"{kubeconfig}: there is no such kubeconfig; give another with --kubeconfig")
    return ExistingWay(Kubectl(shell, clients.kubectl, kubeconfig, context))


def saved_image(cache: Cache, engine: Engine, given: str) -> Image:
    """An image of the engine, or the archive at a path, ready to be loaded. Raises ClusterError for neither."""
    path = Path(given)
    if path.is_file():
        reference = reference_of(path)
        return Image(reference, cache.ensure("saved-images", content_key(path), lambda to: shutil.copyfile(path, to)))
    done = engine.shell.attempt("docker", "image", "inspect", "-f", "{{.Id}}", given)
    if not done.ok:
        raise ClusterError(f"{given}: is no file, and the engine has no such image (`docker images` lists them)")
    key = content_key(given, done.stdout.strip())
    archive = cache.ensure("saved-images", key, lambda to: engine.shell.run("docker", "save", "-o", to, given))
    return Image(given, archive)
