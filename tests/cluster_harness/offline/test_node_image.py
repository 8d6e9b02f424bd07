"""The files of a node image, without a real build, which `emugpu cluster up` does."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest

from cluster_harness.cache import Cache
from cluster_harness.engine import Engine
from cluster_harness.offline import node_image
from cluster_harness.offline.node_image import (
    FILES,
    base_specification,
    has_node_images,
    kubeadm_images,
    node_images,
    program_files,
)
from cluster_harness.offline.node_rootfs import PACKAGES, DebootstrapProgress, debian_rootfs, has_rootfs, strip_for_node
from cluster_harness.shell import Shell
from cluster_harness.steps import Progress

NAMES = [*("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"), "coredns", "pause", "etcd"]


@pytest.fixture
def binaries(tmp_path: Path) -> Path:
    directory = tmp_path / "binaries"
    directory.mkdir()
    for name in (*NAMES, "containerd", "containerd-shim-runc-v2", "ctr", "kubeadm", "kubectl", "kubelet"):
        (directory / name).write_text(name)
    return directory


@pytest.fixture
def rootfs(tmp_path: Path) -> Path:
    root = tmp_path / "rootfs"
    for name in (
        "etc/systemd/system/multi-user.target.wants",
        "lib/systemd/system/sysinit.target.wants",
        "usr/share/doc/x",
        "usr/sbin",
    ):
        (root / name).mkdir(parents=True)
    (root / "etc/systemd/system/multi-user.target.wants/e2scrub.service").touch()
    for name in ("systemd-udevd.service", "systemd-journald.service"):
        (root / "lib/systemd/system/sysinit.target.wants" / name).touch()
    for name in ("nft", "conntrack", "libx.so"):
        (root / "usr/sbin" / name).write_text(name)
    (root / "etc/protocols").write_text("tcp 6 TCP\n")
    return root


@pytest.fixture
def kubernetes(machine, tmp_path: Path) -> dict[str, str]:  # type: ignore[no-untyped-def]
    """kubeadm, ctr and a chroot that answer, real cp, and the files that were packed by tar."""
    packed: dict[str, str] = {}

    def kubeadm(words: list[str], _stdin: str) -> str:
        prefix = words[words.index("--image-repository") + 1]
        assert words[words.index("--kubernetes-version") + 1].startswith("v1.")
        return "\n".join(f"{prefix}/{name}:v1" for name in NAMES)

    def ldd(words: list[str], _stdin: str) -> str:
        found = "\tlinux-vdso.so.1 (0x7f)\n\tlibx.so => /usr/sbin/libx.so (0x7f)\n"
        return found if words[-1] == "/usr/sbin/nft" else ""

    def pack(words: list[str], _stdin: str) -> str:
        stage, target = Path(words[words.index("-C") + 1]), Path(words[words.index("-cf") + 1])
        packed.update({str(p.relative_to(stage)): p.read_text() for p in stage.rglob("*") if p.is_file()})
        target.touch()
        return ""

    specification = json.dumps({"process": {"rlimits": [{"type": "RLIMIT_NOFILE"}], "cwd": "/"}})
    machine.programs |= {
        "kubeadm": kubeadm,
        "chroot": ldd,
        "tar": pack,
        "ctr": lambda _words, _stdin: specification,
        "cp": lambda words, _stdin: Shell(tmp_path / "log").attempt(*words),
    }
    return packed


def test_what_debian_would_start_is_taken_out(rootfs: Path) -> None:
    strip_for_node(rootfs)
    assert not (rootfs / "etc/systemd/system/multi-user.target.wants").exists()
    assert [p.name for p in (rootfs / "lib/systemd/system/sysinit.target.wants").iterdir()] == [
        "systemd-journald.service"
    ]
    assert os.readlink(rootfs / "etc/systemd/system/systemd-udevd.service") == "/dev/null"
    assert not (rootfs / "usr/share/doc").exists()


def test_containers_inherit_the_nodes_limits() -> None:
    assert json.loads(base_specification('{"process": {"rlimits": [1], "cwd": "/"}}')) == {"process": {"cwd": "/"}}
    assert json.loads(base_specification('{"process": {}}')) == {"process": {}}


def test_programs_bring_their_libraries(tmp_path: Path, shell, kubernetes: dict[str, str]) -> None:  # type: ignore[no-untyped-def]
    assert program_files(tmp_path, ("/usr/sbin/nft", "/usr/sbin/conntrack"), shell) == [
        "/usr/sbin/nft",
        "/usr/sbin/libx.so",
        "/usr/sbin/conntrack",
    ]


def test_the_images_are_those_that_kubeadm_names(tmp_path: Path, shell, kubernetes: dict[str, str]) -> None:  # type: ignore[no-untyped-def]
    assert kubeadm_images(tmp_path, shell) == [f"emugpu.local/{name}:v1" for name in NAMES]


def test_a_build_from_nothing(  # type: ignore[no-untyped-def]
    tmp_path: Path,
    binaries: Path,
    rootfs: Path,
    shell,
    machine,
    steps,
    kubernetes: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_image, "components", lambda *_: binaries)
    monkeypatch.setattr(node_image, "debian_rootfs", lambda *_: rootfs)
    engine = Engine(shell, "")
    machine.images |= {"emugpu-node:old": "", "emugpu-node-base:old": ""}
    assert not has_node_images(engine)
    images = node_images(Cache(tmp_path / "cache"), engine, shell, steps)
    assert has_node_images(engine)
    assert kubernetes["usr/local/bin/kubelet"] == "kubelet"
    assert kubernetes["kind/version"].startswith("v1.")
    assert "sandbox = 'emugpu.local/pause:v1'" in kubernetes["etc/containerd/config.toml"]
    assert "rlimits" not in kubernetes["etc/containerd/base-spec.json"]
    assert {"kind/manifests/default-cni.yaml", "kind/manifests/default-storage.yaml"} <= set(kubernetes)
    assert machine.images[images.worker].split() == [f"{name}.tar" for name in ("coredns", "kube-proxy", "pause")]
    assert machine.images[images.control_plane].split() == sorted(f"{name}.tar" for name in NAMES)
    bases = [name for name in machine.images if name.startswith("emugpu-node-base")]
    assert len(machine.images) == 3 and len(bases) == 1 and "old" not in bases[0], "old images are removed"
    assert not (tmp_path / "cache/node-image/stage").exists()
    written = steps.progress["write the control plane's images"]
    assert (str(written[0]), written[-1].done) == ("0 of 7 images (kube-apiserver)", 6)


def test_kube_proxy_knows_protocols_by_name(  # type: ignore[no-untyped-def]
    tmp_path: Path, binaries: Path, rootfs: Path, shell, kubernetes: dict[str, str], monkeypatch, steps
) -> None:
    monkeypatch.setattr(node_image, "components", lambda *_: binaries)
    monkeypatch.setattr(node_image, "debian_rootfs", lambda *_: rootfs)
    cache = Cache(tmp_path / "cache")
    node_images(cache, Engine(shell, ""), shell, steps)
    (archive,) = (tmp_path / "cache/node-archives").glob("*/kube-proxy.tar")
    with tarfile.open(archive) as image:
        (name,) = (member.name for member in image if member.name.endswith("layer.tar"))
        with tarfile.open(fileobj=image.extractfile(name)) as layer:
            assert "etc/protocols" in layer.getnames()


def test_existing_images_cost_nothing(tmp_path: Path, shell, machine, steps) -> None:  # type: ignore[no-untyped-def]
    names = node_image._names()
    machine.images |= {names.control_plane: "", names.worker: ""}
    assert node_images(Cache(tmp_path), Engine(shell, ""), shell, steps) == names
    assert steps.titles == []


def test_a_root_file_system_is_installed_once_with_its_progress(tmp_path: Path, shell, machine, steps) -> None:  # type: ignore[no-untyped-def]
    installs: list[list[str]] = []

    def debootstrap(words: list[str], _stdin: str) -> str:
        installs.append(words)
        (Path(words[-1]) / "etc").mkdir(parents=True)
        (Path(words[-1]) / "etc/resolv.conf").touch()
        return "I: Retrieving Packages \nI: Retrieving libc6 2.36\nI: Configuring libc6:amd64...\n"

    machine.programs["unshare"] = debootstrap
    cache = Cache(tmp_path / "cache")
    assert not has_rootfs(cache)
    for _ in range(2):
        root = debian_rootfs(cache, shell, steps)
    assert has_rootfs(cache) and (root / "etc").is_dir()
    assert not (root / "etc/resolv.conf").exists(), "this machine's resolver is no part of it"
    ((_unshare, mount_namespace, *words),) = installs
    assert mount_namespace == "--mount", "no /proc stays mounted when it is killed"
    included = next(word for word in words if word.startswith("--include="))
    assert set(included.removeprefix("--include=").split(",")) == set(PACKAGES)
    (reports,) = steps.progress.values()
    assert [str(report) for report in reports] == ["1 packages retrieved (libc6)", "1 of 1 packages installed (libc6)"]


def test_packages_are_counted_as_debootstrap_names_them() -> None:
    reports: list[Progress] = []
    progress = DebootstrapProgress(reports.append)
    for line in (
        "I: Target architecture can be executed",
        "I: Retrieving InRelease ",
        "I: Retrieving adduser 3.134",
        "I: Validating adduser 3.134",
        "I: Retrieving libacl1 2.3.1-3",
        "I: Configuring required packages...",
        "I: Configuring libacl1:amd64...",
        "I: Configuring libacl1:amd64...",
        "I: Configuring adduser...",
    ):
        progress.read(line)
    assert [(report.done, report.total) for report in reports] == [(1, None), (2, None), (1, 2), (1, 2), (2, 2)]


def test_services_that_are_killed_come_back() -> None:
    for unit in ("kubelet.service", "containerd.service"):
        text = (FILES / unit).read_text(encoding="utf-8")
        assert "Restart=always" in text and "StartLimitIntervalSec=0" in text
        assert "KillMode=process" in text  # containers outlive it
