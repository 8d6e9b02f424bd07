"""The work of a command on this machine, without what the cache already has. The requirements follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

REGISTRY = "a kind cluster with images from a container registry"
OFFLINE = "a kind cluster whose images are built here, since no container registry answers"
EXISTING_CLUSTER = "an existing cluster"
PROGRAMS = "the programs of Kubernetes"


@dataclass(frozen=True)
class Work:
    """`purpose` is one of the texts above. `builds_...`: what isn't in the cache yet.

    `creates_nodes`: how many node containers will be created (0: none). `clients`: client programs to be built.
    `checkout`: the directory whose images are built; None: none are. `chart` and `kubeconfig`: what must exist.
    """

    purpose: str
    creates_nodes: int = 0
    clients: tuple[str, ...] = ()
    builds_components: bool = False
    builds_root_file_system: bool = False
    builds_node_image: bool = False
    builds_images: bool = False
    checkout: Path | None = None
    chart: Path | None = None
    kubeconfig: Path | None = None

    @property
    def on_kind(self) -> bool:
        return self.purpose in (REGISTRY, OFFLINE)

    @property
    def offline(self) -> bool:
        return self.purpose == OFFLINE

    @property
    def builds_go(self) -> bool:
        """Whether Go compiles something: clients, Kubernetes, or nvidia-smi for the product's image."""
        return bool(self.clients) or self.builds_components or (self.offline and self.builds_images)

    @property
    def installs_debian(self) -> bool:
        """Whether Debian packages are installed below the cache, with chroot and mounts."""
        return self.offline and (self.builds_root_file_system or self.builds_node_image or self.builds_images)
