"""The dependencies of the commands of `emugpu cluster`: the cache, the display of steps, shells, and objects built from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cluster_harness.cache import Cache
from cluster_harness.engine import Engine, running_engine
from cluster_harness.images import CHECKOUT, ImageBuilder
from cluster_harness.nodes.kind import Kind
from cluster_harness.nodes.kubectl import Kubectl
from cluster_harness.nodes.providers import ExistingCluster, KindProvider, existing_cluster
from cluster_harness.offline.image_commit import NodeImages
from cluster_harness.offline.node_image import has_node_images
from cluster_harness.offline.node_rootfs import has_rootfs
from cluster_harness.product.chart import Chart
from cluster_harness.programs import Clients, clients, has_components, missing_clients
from cluster_harness.requirements.host import Host, probe
from cluster_harness.requirements.message import files_of, require
from cluster_harness.requirements.work import OFFLINE, Work
from cluster_harness.shell import Shell
from cluster_harness.state import EXISTING, ClusterDirectory, ClusterState
from cluster_harness.steps import Steps
from emulator_runtime.domain.errors import ClusterError

_NO_IMAGES = NodeImages("", "")
Probe = Callable[[Cache, Shell, Iterable[Path]], Host]


@dataclass(frozen=True)
class Site:
    """`probe_host` collects the facts about this machine against which requirements are checked."""

    cache: Cache
    steps: Steps
    environ: Mapping[str, str] = field(default_factory=dict)
    probe_host: Probe = probe

    def directory(self, name: str) -> ClusterDirectory:
        return ClusterDirectory(self.cache.root, name)

    def shell(self, name: str) -> Shell:
        """A shell that writes to the log of a cluster."""
        return Shell(self.directory(name).log, self.environ)

    def engine_shell(self) -> Shell:
        """A shell with a log of its own, for work that concerns no single cluster."""
        return Shell(self.cache.root / "logs" / "engine.log", self.environ)

    def require(self, work: Work) -> None:
        """Raises ClusterError that names everything this machine lacks for the work."""
        require(self.probe_host(self.cache, self.engine_shell(), files_of(work)), work)

    def missing_clients(self, name: str, *, with_kind: bool) -> tuple[str, ...]:
        return missing_clients(self.cache, self.shell(name), with_kind=with_kind)

    def work_on_kind(self, purpose: str, engine: Engine | None, nodes: int, chart: Path | None) -> Work:
        """The work of building and creating a kind cluster; without a running engine, all images count as missing."""
        offline = purpose == OFFLINE
        builder = ImageBuilder(self.cache, self.engine_shell(), self.steps, on_the_spot=offline)
        builds_images = bool(builder.missing())
        builds_node_image = offline and nodes > 0 and not (engine is not None and has_node_images(engine))
        builds_components = builds_node_image and not has_components(self.cache)
        return Work(
            purpose,
            creates_nodes=nodes,
            clients=() if builds_components else missing_clients(self.cache, self.engine_shell()),
            builds_components=builds_components,
            builds_root_file_system=offline and (builds_node_image or builds_images) and not has_rootfs(self.cache),
            builds_node_image=builds_node_image,
            builds_images=builds_images,
            checkout=CHECKOUT,
            chart=chart,
        )

    def running_engine(self, name: str) -> Engine:
        """The engine of a kind cluster. Raises ClusterError if it doesn't run."""
        engine = running_engine(self.cache, self.shell(name))
        if engine is None:
            raise ClusterError(
                f"the Docker engine of cluster {name!r} has ended; `emugpu cluster down --name {name}`, then up"
            )
        return engine

    def provider(self, state: ClusterState) -> KindProvider | ExistingCluster:
        """The provider of a complete cluster's nodes."""
        if state.way == EXISTING:
            return self.existing(state)
        return self.kind(
            state, self.running_engine(state.spec.name), clients(self.cache, self.shell(state.spec.name), self.steps)
        )

    def existing(self, state: ClusterState) -> ExistingCluster:
        shell = self.shell(state.spec.name)
        programs = clients(self.cache, shell, self.steps, with_kind=False)
        return existing_cluster(programs, shell, Path(state.kubeconfig), state.context)

    def kind(
        self, state: ClusterState, engine: Engine, programs: Clients, images: NodeImages = _NO_IMAGES
    ) -> KindProvider:
        directory = self.directory(state.spec.name)
        kind = Kind(programs.kind, engine, state.spec.name, images, state.on_the_spot)
        return KindProvider(kind, directory, Kubectl(engine.shell, programs.kubectl, directory.kubeconfig))

    def chart(self, state: ClusterState, kubectl: Kubectl, directory: Path = CHECKOUT / "charts" / "emugpu") -> Chart:
        shell = self.shell(state.spec.name)
        return Chart(shell, clients(self.cache, shell, self.steps, with_kind=False).helm, kubectl, directory)
