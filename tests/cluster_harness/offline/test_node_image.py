"""What goes into a node image, checked on the files that are laid down; the real build is what `emugpu cluster up` does."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cluster_harness.cache import Cache
from cluster_harness.engine import Engine
from cluster_harness.offline import node_image
from cluster_harness.offline.node_image import FILES, base_specification, kubeadm_images, node_images, program_files
from cluster_harness.offline.node_rootfs import PACKAGES, debian_rootfs, strip_for_node
from cluster_harness.shell import Done, Shell
from emulator_runtime.domain.errors import ClusterError

NAMES = [*("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"), "coredns", "pause", "etcd"]
LIST = "\n".join(f"emugpu.local/{name}:v1" for name in NAMES)


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
    return root


def answers() -> dict[str, object]:
    return {
        "image inspect": Done(1, "", ""),
        "kubeadm config images list": LIST,
        "oci spec": json.dumps({"process": {"rlimits": [{"type": "RLIMIT_NOFILE"}], "cwd": "/"}}),
        "ldd /usr/sbin/nft": "\tlinux-vdso.so.1 (0x7f)\n\tlibx.so => /usr/sbin/libx.so (0x7f)\n",
        "docker images": lambda words: f"{words[-1]}:old\n",
    }


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


def test_programs_bring_their_libraries(tmp_path: Path, make_shell) -> None:  # type: ignore[no-untyped-def]
    shell = make_shell(answers())
    assert program_files(tmp_path, ("/usr/sbin/nft", "/usr/sbin/conntrack"), shell) == [
        "/usr/sbin/nft",
        "/usr/sbin/libx.so",
        "/usr/sbin/conntrack",
    ]


def test_the_images_are_those_that_kubeadm_names(tmp_path: Path, make_shell) -> None:  # type: ignore[no-untyped-def]
    shell = make_shell(answers())
    assert kubeadm_images(tmp_path, shell) == LIST.split()
    assert "--image-repository emugpu.local --kubernetes-version v1." in shell.ran[0]


def test_a_build_from_nothing(
    tmp_path: Path,
    binaries: Path,
    rootfs: Path,
    make_shell,
    steps,
    monkeypatch: pytest.MonkeyPatch,  # type: ignore[no-untyped-def]
) -> None:
    monkeypatch.setattr(node_image, "components", lambda *_: binaries)
    monkeypatch.setattr(node_image, "debian_rootfs", lambda *_: rootfs)
    copied: list[dict[str, str]] = []
    real = Shell(tmp_path / "log")

    def copy(words: list[str]) -> str:
        return real.run(*words)

    def pack(words: list[str]) -> str:
        stage = Path(words[2])
        copied.append({str(p.relative_to(stage)): p.read_text() for p in stage.rglob("*") if p.is_file()})
        Path(words[5]).touch()
        return ""

    shell = make_shell({"cp -a": copy, "tar -C": pack, **answers()})
    images = node_images(Cache(tmp_path / "cache"), Engine(shell, ""), shell, steps)
    assert images.worker == f"{images.control_plane}-worker"
    (files,) = copied
    assert files["usr/local/bin/kubelet"] == "kubelet"
    assert files["kind/version"].startswith("v1.")
    assert "sandbox = 'emugpu.local/pause:v1'" in files["etc/containerd/config.toml"]
    assert "rlimits" not in files["etc/containerd/base-spec.json"]
    assert {"kind/manifests/default-cni.yaml", "kind/manifests/default-storage.yaml"} <= set(files)
    worker, control_plane = [line for line in shell.ran if line.startswith("docker run")]
    assert worker.count("ctr -n k8s.io images import") == 3
    assert control_plane.count("ctr -n k8s.io images import") == 7
    assert [line.split()[-1] for line in shell.ran if "rmi" in line] == ["emugpu-node:old", "emugpu-node-base:old"]
    assert not (tmp_path / "cache/node-image/stage").exists()


def test_images_that_are_there_cost_nothing(tmp_path: Path, make_shell, steps) -> None:  # type: ignore[no-untyped-def]
    shell = make_shell()
    node_images(Cache(tmp_path), Engine(shell, ""), shell, steps)
    assert steps.said == []
    assert len(shell.ran) == 2


def test_a_root_file_system_needs_debootstrap(tmp_path: Path, steps) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ClusterError, match="apt-get install debootstrap"):
        debian_rootfs(Cache(tmp_path), Shell(tmp_path / "log", {"PATH": str(tmp_path)}), steps)


def test_debootstrap_runs_in_a_mount_namespace_of_its_own(tmp_path: Path, make_shell, steps) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "debootstrap").write_text("#!/bin/sh\n")
    (tmp_path / "debootstrap").chmod(0o755)

    def install(words: list[str]) -> str:
        (Path(words[-1]) / "etc").mkdir(parents=True)
        return ""

    shell = make_shell({"debootstrap": install})
    shell.environ["PATH"] = str(tmp_path)
    assert (debian_rootfs(Cache(tmp_path / "cache"), shell, steps) / "etc").is_dir()
    (line,) = shell.ran
    assert line.startswith("unshare --mount debootstrap --variant=minbase")
    assert all(package in line for package in PACKAGES)


def test_services_that_are_killed_come_back() -> None:
    for unit in ("kubelet.service", "containerd.service"):
        text = (FILES / unit).read_text(encoding="utf-8")
        assert "Restart=always" in text and "StartLimitIntervalSec=0" in text
        assert "KillMode=process" in text  # containers outlive it
