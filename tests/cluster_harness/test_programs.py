"""Versions come from the Go module; programs from the cache, the PATH or a build, in this order."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster_harness import programs as module
from cluster_harness import versions
from cluster_harness.cache import Cache
from cluster_harness.programs import CLIENTS, Clients, clients, components, linker_flags, module_key
from cluster_harness.shell import Shell
from emulator_runtime.domain.errors import ClusterError

GO = """#!/bin/sh
[ "$1" = install ] || exit 1
echo "some/package" >&2
for word in "$@"; do :; done
if [ -n "$FAIL" ]; then echo "cannot find module" >&2; exit 1; fi
touch "$GOBIN/server" "$GOBIN/kind" "$GOBIN/kubectl" "$GOBIN/helm"
echo "$CGO_ENABLED $*" > "$GOBIN/line"
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A PATH with nothing but a Go that makes empty files."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/go").write_text(GO)
    (tmp_path / "bin/go").chmod(0o755)
    (tmp_path / "bin/touch").symlink_to("/usr/bin/touch")
    return {"PATH": str(tmp_path / "bin")}


def test_versions_are_those_of_the_module() -> None:
    assert versions.kubernetes().startswith("v1.")
    assert versions.containerd().startswith("v2.")
    assert versions.go_version("sigs.k8s.io/kind") == "v0.33.0", "STOCK_NODE_IMAGE is that version's default"


def test_a_module_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("module x\n\nrequire example.org/a v1.2.3\n")
    assert versions.go_version("example.org/a", tmp_path / "go.mod") == "v1.2.3"
    with pytest.raises(ClusterError, match=r"go get example\.org/b"):
        versions.go_version("example.org/b", tmp_path / "go.mod")


def test_the_stamp_says_the_version_twice() -> None:
    flags = linker_flags()
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        assert f"-X {package}.gitVersion={versions.kubernetes()} " in flags
        assert f"-X {package}.gitMajor=1 " in flags


def test_a_build_is_static_stamped_and_made_once(tmp_path: Path, environ: dict[str, str], steps) -> None:  # type: ignore[no-untyped-def]
    cache = Cache(tmp_path / "cache")
    directory = components(cache, Shell(tmp_path / "log", environ), steps)
    line = (directory / "line").read_text()
    assert line.startswith("0 install -v -trimpath -ldflags -s -w")
    assert line.endswith("tool ./coredns ./pause\n")
    assert (directory / "etcd").exists() and not (directory / "server").exists()
    assert "1 packages: some/package" in steps.said
    assert components(cache, Shell(tmp_path / "log", {"PATH": ""}), steps) == directory


def test_a_build_that_fails_shows_why_and_leaves_nothing(tmp_path: Path, environ: dict[str, str], steps) -> None:  # type: ignore[no-untyped-def]
    cache = Cache(tmp_path / "cache")
    with pytest.raises(ClusterError, match="failed: cannot find module"):
        components(cache, Shell(tmp_path / "log", environ | {"FAIL": "1"}), steps)
    assert not cache.has("components", module_key())


def test_without_go_the_message_says_what_to_install(tmp_path: Path, steps) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ClusterError, match="install Go"):
        components(Cache(tmp_path), Shell(tmp_path / "log", {"PATH": str(tmp_path)}), steps)


def test_clients_on_the_path_are_used(tmp_path: Path, steps) -> None:  # type: ignore[no-untyped-def]
    for name in CLIENTS:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    found = clients(Cache(tmp_path / "cache"), Shell(tmp_path / "log", {"PATH": str(tmp_path)}), steps)
    assert found == Clients(tmp_path / "kind", tmp_path / "kubectl", tmp_path / "helm")
    assert steps.said == []


def test_only_the_clients_are_built_where_one_is_missing(tmp_path: Path, environ: dict[str, str], steps) -> None:  # type: ignore[no-untyped-def]
    found = clients(Cache(tmp_path / "cache"), Shell(tmp_path / "log", environ), steps)
    assert found.kind.parent == found.helm.parent
    line = (found.kind.parent / "line").read_text()
    assert "sigs.k8s.io/kind" in line and "kube-apiserver" not in line


def test_ours_come_first(tmp_path: Path, environ: dict[str, str], steps, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(module, "module_key", lambda: "key")
    cache = Cache(tmp_path / "cache")
    cache.ensure("components", "key", lambda path: path.mkdir())
    found = clients(cache, Shell(tmp_path / "log", environ), steps)
    assert found.kind == cache.path("components", "key") / "kind"
