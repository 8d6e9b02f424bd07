"""The image that kind creates nodes from, built here where no registry gives kind's own.

Its contents follow from kind v0.33.0 (images/base, pkg/build/nodeimage) and kubeadm's image names.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

from cluster_harness import versions
from cluster_harness.cache import Cache, content_key
from cluster_harness.engine import Engine
from cluster_harness.offline.image_archive import ImageSpec, write_image
from cluster_harness.offline.image_commit import NodeImages, commit_with_archives, remove_other_images
from cluster_harness.offline.node_rootfs import debian_rootfs, strip_for_node
from cluster_harness.programs import components, module_key
from cluster_harness.shell import Shell
from cluster_harness.steps import Progress, Steps

FILES = Path(__file__).parent / "node"
_MODULES = ("node_image.py", "node_rootfs.py", "image_commit.py", "image_archive.py")
_ON_NODES = ("containerd", "containerd-shim-runc-v2", "ctr", "kubeadm", "kubectl", "kubelet")
_UNITS = ("containerd.service", "kubelet.service", "emugpu-routes.service")
_WORKER_IMAGES = ("kube-proxy", "coredns", "pause")
_ANY_OBJECT = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: kube-system}\n"
"""kind applies two manifests, a network and a storage class: both files must exist, and neither has to do anything."""


def has_node_images(engine: Engine) -> bool:
    return all(engine.has_image(reference) for reference in (_names().control_plane, _names().worker))


def _names() -> NodeImages:
    return NodeImages(f"emugpu-node:{_key()}", f"emugpu-node:{_key()}-worker")


def _key() -> str:
    here = Path(__file__).parent
    return content_key(FILES, *(here / name for name in _MODULES), module_key(), versions.DEBIAN_SUITE)


def node_images(cache: Cache, engine: Engine, shell: Shell, steps: Steps) -> NodeImages:
    """The images in the engine, built unless it has them. Raises ClusterError."""
    images, key = _names(), _key()
    if has_node_images(engine):
        return images
    binaries = components(cache, shell, steps)
    rootfs = debian_rootfs(cache, shell, steps)
    with cache.lock("node-image"):
        archives = cache.ensure(
            "node-archives", key, lambda path: _write_archives(path, binaries, rootfs, shell, steps)
        )
        base = f"emugpu-node-base:{key}"
        if not engine.has_image(base):
            with steps.step("import the node image"):
                _import_base(cache.root / "node-image", base, rootfs, binaries, engine)
        for reference, names in ((images.worker, _WORKER_IMAGES), (images.control_plane, None)):
            with steps.step(f"put images into {reference}") as report:
                chosen = sorted(archives.glob("*.tar") if names is None else (archives / f"{n}.tar" for n in names))
                commit_with_archives(reference, base, chosen, engine, report)
        remove_other_images(engine, "emugpu-node", keep=(images.worker, images.control_plane))
        remove_other_images(engine, "emugpu-node-base", keep=(base,))
    return images


def _import_base(work: Path, base: str, rootfs: Path, binaries: Path, engine: Engine) -> None:
    stage = work / "stage"
    shutil.rmtree(stage, ignore_errors=True)
    try:
        engine.shell.run("cp", "-a", "--reflink=auto", rootfs, stage)
        strip_for_node(stage)
        _add_programs(stage, binaries, engine.shell)
        tar = work / "base.tar"
        engine.shell.run("tar", "-C", stage, "--numeric-owner", "-cf", tar, ".")
        engine.shell.run("docker", "import", tar, base)
        tar.unlink()
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _add_programs(root: Path, binaries: Path, shell: Shell) -> None:
    """Adds our programs, units and kind's files to Debian's."""
    for name in _ON_NODES:
        _copy(binaries / name, root / "usr/local/bin" / name, 0o755)
    _copy(FILES / "entrypoint", root / "usr/local/bin/entrypoint", 0o755)
    _copy(FILES / "cgroup-v2", root / "usr/local/lib/emugpu/cgroup-v2", 0o755)
    wants = root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True)
    for unit in _UNITS:
        _copy(FILES / unit, root / "etc/systemd/system" / unit, 0o644)
        (wants / unit).symlink_to(f"/etc/systemd/system/{unit}")
    pause = next(name for name in kubeadm_images(binaries, shell) if "/pause:" in name)
    configuration = (FILES / "containerd.toml").read_text(encoding="utf-8").replace("PAUSE_IMAGE", pause)
    _write(root / "etc/containerd/config.toml", configuration)
    _copy(FILES / "cni.conflist.template", root / "etc/containerd/cni.conflist.template", 0o644)
    _write(root / "etc/containerd/base-spec.json", base_specification(shell.run(binaries / "ctr", "oci", "spec")))
    _write(root / "kind/version", versions.kubernetes())
    for name in ("default-cni", "default-storage"):
        _write(root / f"kind/manifests/{name}.yaml", _ANY_OBJECT % name)
    (root / "etc/resolv.conf").touch()  # Docker mounts a file of its own here


def base_specification(generated: str) -> str:
    """containerd's default specification of containers without resource limits, so that they inherit the node's."""
    specification = json.loads(generated)
    specification["process"].pop("rlimits", None)
    return json.dumps(specification)


def kubeadm_images(binaries: Path, shell: Shell) -> list[str]:
    """The images that kubeadm and its manifests refer to, with our prefix."""
    prefix = ("--image-repository", versions.IMAGE_REPOSITORY)
    version = ("--kubernetes-version", versions.kubernetes())
    return shell.run(binaries / "kubeadm", "config", "images", "list", *prefix, *version).split()


def _write_archives(path: Path, binaries: Path, rootfs: Path, shell: Shell, steps: Steps) -> None:
    path.mkdir()
    with steps.step("write the control plane's images") as report:
        references = kubeadm_images(binaries, shell)
        for index, reference in enumerate(references):
            name = reference.rpartition("/")[2].partition(":")[0]
            report(Progress(index, len(references), "images", name))
            tree = path / "tree"
            _copy(binaries / name, tree / f"usr/local/bin/{name}", 0o755)
            if name == "kube-proxy":
                for file in program_files(rootfs, ("/usr/sbin/nft", "/usr/sbin/conntrack"), shell):
                    _copy(rootfs / file.lstrip("/"), tree / file.lstrip("/"), 0o755)
                # Without it, nft lists protocols as numbers, and kube-proxy, which writes names, deletes the rules of all
                # services when it compares them with its own, once an hour.
                _copy(rootfs / "etc/protocols", tree / "etc/protocols", 0o644)
            entrypoint = [] if name.startswith(("kube-", "etcd")) else [f"/usr/local/bin/{name}"]
            spec = ImageSpec(entrypoint=entrypoint, env={"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"})
            write_image(path / f"{name}.tar", reference, [tree], spec)
            shutil.rmtree(tree)


def program_files(rootfs: Path, programs: Iterable[str], shell: Shell) -> list[str]:
    """Programs of `rootfs` and their shared libraries according to its own linker, as absolute paths inside."""
    files: dict[str, None] = {}
    for program in programs:
        files[program] = None
        for word in shell.run("chroot", rootfs, "ldd", program).split():
            if word.startswith("/"):
                files[word] = None
    return list(files)


def _copy(source: Path, target: Path, mode: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def _write(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
