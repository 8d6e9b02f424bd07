"""kind's configuration with its stock node image and with ours, and images on nodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from cluster_harness.engine import Engine
from cluster_harness.nodes.kind import Kind
from cluster_harness.offline.image_commit import NodeImages
from cluster_harness.shell import Done
from cluster_harness.steps import Progress
from emulator_runtime.domain.errors import ClusterError

IMAGES = NodeImages("control:1", "worker:1")


@pytest.fixture
def make_kind(shell) -> Callable[..., Kind]:  # type: ignore[no-untyped-def]
    return lambda *, on_the_spot=True: Kind(Path("kind"), Engine(shell, "28.0"), "dev", IMAGES, on_the_spot)


def patches(configuration: dict[str, list[str]]) -> dict[str, dict[str, object]]:
    return {patch["kind"]: patch for patch in map(yaml.safe_load, configuration["kubeadmConfigPatches"])}


def test_our_node_image_needs_its_own_settings(make_kind: Callable[..., Kind]) -> None:
    configuration = make_kind().configuration([{"a": "b"}, {}], Path("/x/memlock.conf"))
    assert [(n["role"], n["image"]) for n in configuration["nodes"]] == [
        ("control-plane", "control:1"),
        ("worker", "worker:1"),
        ("worker", "worker:1"),
    ]
    assert [node.get("labels") for node in configuration["nodes"]] == [None, {"a": "b"}, None]
    assert configuration["networking"] == {"kubeProxyMode": "nftables"}
    found = patches(configuration)
    assert found["KubeletConfiguration"]["cgroupDriver"] == "cgroupfs"
    assert found["ClusterConfiguration"]["imageRepository"] == "emugpu.local"


@pytest.mark.parametrize("on_the_spot", [True, False])
def test_every_node_restarts_containers_at_once_and_may_lock_memory(
    make_kind: Callable[..., Kind], *, on_the_spot: bool
) -> None:
    configuration = make_kind(on_the_spot=on_the_spot).configuration([{}], Path("/x/memlock.conf"))
    kubelet = patches(configuration)["KubeletConfiguration"]
    assert kubelet["crashLoopBackOff"] == {"maxContainerRestartPeriod": "1s"}
    assert kubelet["failCgroupV1"] is False
    for node in configuration["nodes"]:
        (mount,) = node["extraMounts"]
        assert mount["hostPath"] == "/x/memlock.conf"
        assert mount["containerPath"].startswith("/etc/systemd/system/containerd.service.d/")


def test_the_stock_image_is_left_as_it_is(make_kind: Callable[..., Kind]) -> None:
    configuration = make_kind(on_the_spot=False).configuration([{}], Path("/x"))
    assert "networking" not in configuration
    assert set(patches(configuration)) == {"KubeletConfiguration"}
    assert "cgroupDriver" not in patches(configuration)["KubeletConfiguration"]


def test_created_nodes_may_lock_memory_and_have_the_labels(tmp_path: Path, make_kind, machine) -> None:  # type: ignore[no-untyped-def]
    make_kind().create([{"pool": "a"}, {}], tmp_path)
    assert [node.labels.get("pool") for node in machine.nodes.values()] == [None, "a", None]
    (mount,) = machine.clusters["dev"]["nodes"][0]["extraMounts"]
    assert "LimitMEMLOCK=infinity" in Path(mount["hostPath"]).read_text()
    assert machine.kubeconfigs["dev"] == str(tmp_path / "kubeconfig"), "the user's own kubeconfig isn't touched"


def test_exists_compares_whole_names(make_kind, machine) -> None:  # type: ignore[no-untyped-def]
    machine.clusters["dev2"] = {}
    assert not make_kind().exists()
    machine.clusters["dev"] = {}
    assert make_kind().exists()


@pytest.fixture
def archives(tmp_path: Path) -> list[Path]:
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"image {name}")
    return [tmp_path / "a", tmp_path / "b"]


def test_every_archive_reaches_every_node(archives, make_kind, machine, make_node) -> None:  # type: ignore[no-untyped-def]
    machine.add_nodes(make_node("n1"), make_node("n2"))
    reports: list[Progress] = []
    make_kind().load(archives, ["n1", "n2"], reports.append)
    assert [sorted(node.images) for node in machine.nodes.values()] == 2 * [["image a", "image b"]]
    assert str(reports[-1]) == "4 of 4 copies"


def test_a_node_that_refuses_an_image_is_an_error(archives, make_kind, machine, make_node) -> None:  # type: ignore[no-untyped-def]
    machine.add_nodes(make_node("n1"), make_node("n2"))
    machine.failures["image import on n2"] = Done(1, "", "no space left on device")
    with pytest.raises(ClusterError, match="no space left"):
        make_kind().load(archives, ["n1", "n2"], lambda _progress: None)
