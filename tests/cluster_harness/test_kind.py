"""What kind is told, per way, and what is brought onto which node."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from cluster_harness.engine import Engine
from cluster_harness.kind import Kind
from cluster_harness.offline.image_commit import NodeImages
from cluster_harness.shell import Done
from emulator_runtime.domain.errors import ClusterError

IMAGES = NodeImages("control:1", "worker:1")


def kind(shell, *, on_the_spot: bool = True) -> Kind:  # type: ignore[no-untyped-def]
    return Kind(Path("kind"), Engine(shell, "28.0"), "dev", IMAGES, on_the_spot)


def patches(configuration: dict[str, list[str]]) -> dict[str, dict[str, object]]:
    return {patch["kind"]: patch for patch in map(yaml.safe_load, configuration["kubeadmConfigPatches"])}


def test_our_node_image_needs_its_own_settings(make_shell) -> None:  # type: ignore[no-untyped-def]
    configuration = kind(make_shell()).configuration([{"a": "b"}, {}], Path("/x/memlock.conf"))
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
def test_every_node_restarts_containers_at_once_and_may_lock_memory(on_the_spot: bool, make_shell) -> None:  # type: ignore[no-untyped-def]
    configuration = kind(make_shell(), on_the_spot=on_the_spot).configuration([{}], Path("/x/memlock.conf"))
    kubelet = patches(configuration)["KubeletConfiguration"]
    assert kubelet["crashLoopBackOff"] == {"maxContainerRestartPeriod": "1s"}
    assert kubelet["failCgroupV1"] is False
    for node in configuration["nodes"]:
        (mount,) = node["extraMounts"]
        assert mount["hostPath"] == "/x/memlock.conf"
        assert mount["containerPath"].startswith("/etc/systemd/system/containerd.service.d/")


def test_the_stock_image_is_left_as_it_is(make_shell) -> None:  # type: ignore[no-untyped-def]
    configuration = kind(make_shell(), on_the_spot=False).configuration([{}], Path("/x"))
    assert "networking" not in configuration
    assert set(patches(configuration)) == {"KubeletConfiguration"}
    assert "cgroupDriver" not in patches(configuration)["KubeletConfiguration"]


def test_create_gives_kind_the_configuration_and_a_kubeconfig_of_its_own(tmp_path: Path, make_shell) -> None:  # type: ignore[no-untyped-def]
    shell = make_shell()
    kind(shell).create([{}], tmp_path)
    (line,) = shell.ran
    assert f"--kubeconfig {tmp_path / 'kubeconfig'}" in line
    given = yaml.safe_load(shell.inputs[line])
    assert given["nodes"][0]["extraMounts"][0]["hostPath"] == str(tmp_path / "memlock.conf")
    assert "LimitMEMLOCK=infinity" in (tmp_path / "memlock.conf").read_text()


def test_exists_compares_whole_names(make_shell) -> None:  # type: ignore[no-untyped-def]
    assert kind(make_shell({"get clusters": "dev\nother\n"})).exists()
    assert not kind(make_shell({"get clusters": "dev2\n"})).exists()


def test_every_archive_reaches_every_node(tmp_path: Path, make_shell) -> None:  # type: ignore[no-untyped-def]
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    shell, notes = make_shell(), []
    kind(shell).load([tmp_path / "a", tmp_path / "b"], ["n1", "n2"], notes.append)
    assert sorted(line.split()[3] for line in shell.ran) == ["n1", "n1", "n2", "n2"]
    assert all("ctr -n k8s.io images import" in line for line in shell.ran)
    assert notes[-1] == "4 of 4"


def test_a_node_that_refuses_an_image_is_an_error(tmp_path: Path, make_shell) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "a").write_text("a")
    shell = make_shell({"docker exec -i n2": Done(1, "", "no space left on device")})
    with pytest.raises(ClusterError, match="no space left"):
        kind(shell).load([tmp_path / "a"], ["n1", "n2"], lambda _text: None)
