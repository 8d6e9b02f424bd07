"""Adds images to our node image: cheaper than importing them into each running node, since nodes are copies of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster_harness.cache import content_key
from cluster_harness.engine import Engine
from cluster_harness.shell import DEFAULT_TIMEOUT_S
from cluster_harness.steps import Progress, Report, Steps

LOADED = "emugpu-node-loaded"
"""Repository of node images that contain the product's images; old ones are removed."""

_IMPORT = "ctr -n k8s.io images import --label=io.cri-containerd.image=managed --no-unpack"
_IMPORTED = "emugpu: imported"
"""A line that the container prints after each archive."""


@dataclass(frozen=True)
class NodeImages:
    """Image references. The worker's lacks the control plane's images, which each node would copy into its own volume."""

    control_plane: str
    worker: str


def with_product(images: NodeImages, archives: Sequence[Path], engine: Engine, steps: Steps) -> NodeImages:
    """Node images that also contain these archives, which a node unpacks for its first pod. Raises ClusterError."""
    key = content_key(*(f"{path.parent.name}/{path.name}" for path in archives))  # the names are hashes of the content
    loaded = {base: f"{LOADED}:{base.partition(':')[2]}-{key}" for base in (images.worker, images.control_plane)}
    missing = {base: reference for base, reference in loaded.items() if not engine.has_image(reference)}
    if missing:
        with steps.step("put the product into the node images") as report:
            remove_other_images(engine, LOADED, keep=())
            for base, reference in missing.items():
                commit_with_archives(reference, base, archives, engine, report)
    return NodeImages(loaded[images.control_plane], loaded[images.worker])


def remove_other_images(engine: Engine, repository: str, keep: Sequence[str]) -> None:
    """Removes the other images of a repository; the engine refuses to remove those that containers use."""
    for reference in engine.shell.run("docker", "images", "--format", "{{.Repository}}:{{.Tag}}", repository).split():
        if reference not in keep:
            engine.shell.attempt("docker", "rmi", reference)


def commit_with_archives(reference: str, base: str, archives: Sequence[Path], engine: Engine, report: Report) -> None:
    """Runs containerd in a container of `base`, imports the archives, commits it as `reference`. Raises ClusterError."""
    imports = "; ".join(f"{_IMPORT} /archives/{index}; echo {_IMPORTED}" for index in range(len(archives)))
    script = (
        "containerd & until ctr version >/dev/null 2>&1; do sleep 0.1; done; set -e; "
        f"{imports}; kill %1; wait || true; rm -rf /run/containerd"
    )
    mounts = [word for index, path in enumerate(archives) for word in ("-v", f"{path}:/archives/{index}:ro")]
    container = reference.replace(":", "-")
    imported = 0

    def read(line: str) -> None:
        nonlocal imported
        imported += line == _IMPORTED
        report(Progress(imported, len(archives), "images"))

    engine.shell.attempt("docker", "rm", "-f", container)
    try:
        # `docker commit` copies the container's stop signal and has no option for it
        options = ("--name", container, "--network=none", "--stop-signal=SIGRTMIN+3", *mounts)
        container_command = ("docker", "run", *options, "--entrypoint=/bin/bash", base, "-mc", script)
        engine.shell.stream(*container_command, on_line=read, timeout_s=DEFAULT_TIMEOUT_S)
        changes = ('ENTRYPOINT ["/usr/local/bin/entrypoint"]', "CMD []", "ENV container=docker")
        words = [word for change in changes for word in ("--change", change)]
        engine.shell.run("docker", "commit", *words, container, reference)
    finally:
        engine.shell.attempt("docker", "rm", "-f", container)
