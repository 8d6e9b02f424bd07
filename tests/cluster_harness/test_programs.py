"""Versions come from the Go module; programs from the cache, the PATH or a build, in this order."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster_harness import programs, versions
from cluster_harness.cache import Cache
from cluster_harness.go_build import BuildPlan, go_install, is_package, plan_of
from cluster_harness.programs import (
    CLIENTS,
    Clients,
    clients,
    components,
    has_components,
    linker_flags,
    missing_clients,
    module_key,
)
from cluster_harness.shell import Shell
from cluster_harness.steps import Progress
from emulator_runtime.domain.errors import ClusterError

GO = """#!/bin/sh
for word in "$@"; do last=$word; done
case "$1" in
list)
  echo "go: downloading example.org/module v1.0.0" >&2
  echo "true true stale dependency: internal/cpu"
  echo "true true not installed but available in build cache"
  echo "false true "
  echo "true false build ID mismatch"
  echo "true false not installed but available in build cache"
  ;;
install)
  if [ -n "$FAIL" ]; then echo "cannot find module" >&2; exit 1; fi
  echo "some/package" >&2
  echo "# some/package: a warning" >&2
  echo "some/program" >&2
  for name in server kind kubectl helm; do : > "$GOBIN/$name"; done
  echo "CGO_ENABLED=$CGO_ENABLED $last" > "$GOBIN/build"
  ;;
esac
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A PATH with nothing but a Go that writes empty files."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/go").write_text(GO)
    (tmp_path / "bin/go").chmod(0o755)
    return {"PATH": str(tmp_path / "bin")}


def test_versions_are_those_of_the_module() -> None:
    assert versions.kubernetes().startswith("v1.")
    assert versions.containerd().startswith("v2.")
    assert versions.go_version("sigs.k8s.io/kind") == "v0.33.0", "STOCK_NODE_IMAGE is that version's default"


def test_a_module_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("module x\n\ngo 1.26.3\n\nrequire example.org/a v1.2.3\n")
    assert versions.go_version("example.org/a", tmp_path / "go.mod") == "v1.2.3"
    with pytest.raises(ClusterError, match=r"go get example\.org/b"):
        versions.go_version("example.org/b", tmp_path / "go.mod")
    assert versions.go_toolchain(tmp_path / "go.mod") == (1, 26, 3)
    (tmp_path / "go.mod").write_text("module x\n")
    with pytest.raises(ClusterError, match=r"has no line `go X\.Y\.Z`"):
        versions.go_toolchain(tmp_path / "go.mod")


def test_the_stamp_says_the_version_twice() -> None:
    flags = linker_flags()
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        assert f"-X {package}.gitVersion={versions.kubernetes()} " in flags
        assert f"-X {package}.gitMajor=1 " in flags


TITLE = "build the programs of Kubernetes (cold: 7 to 12 minutes on 2 cores)"


def test_a_build_counts_what_it_does_and_is_done_once(tmp_path: Path, environ: dict[str, str], steps) -> None:  # type: ignore[no-untyped-def]
    cache = Cache(tmp_path / "cache")
    assert not has_components(cache)
    directory = components(cache, Shell(tmp_path / "log", environ), steps)
    assert (directory / "build").read_text() == "CGO_ENABLED=0 ./pause\n", "static, with our own programs"
    assert (directory / "etcd").exists() and not (directory / "server").exists()
    assert str(steps.progress[TITLE][0]) == "1 modules downloaded (example.org/module v1.0.0)"
    assert has_components(cache) and components(cache, Shell(tmp_path / "log", {"PATH": ""}), steps) == directory


def test_packages_and_programs_are_counted(tmp_path: Path, shell, machine) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "kubectl").touch()
    listed = "true true stale dependency: x\ntrue false build ID mismatch\ntrue false build ID mismatch\n"
    machine.programs["go"] = lambda words, _stdin: listed if words[1] == "list" else "a/b\n# a/b\nc/kubectl\nc/kind\n"
    reports: list[Progress] = []
    go_install(shell, tmp_path, ["c/..."], "-s", tmp_path, reports.append)
    assert [str(report) for report in reports] == [
        "2 of 5 packages and programs (a/b)",
        "3 of 5 packages and programs (c/kubectl)",
        "4 of 5 packages and programs (1 of 2 programs are linked)",
    ]


def test_packages_in_the_build_cache_are_not_counted() -> None:
    lines = [
        "true true stale dependency: internal/cpu",
        "true true not installed but available in build cache",
        "false true ",
        "true false build ID mismatch",
        "true false not installed but available in build cache",
    ]
    assert plan_of(lines) == BuildPlan(packages=2, programs=2)
    assert plan_of([]) == BuildPlan(0, 0)


@pytest.mark.parametrize(
    ("line", "package"),
    [
        ("k8s.io/api/core/v1", True),
        ("runtime", True),
        ("# k8s.io/api/core/v1", False),
        ("go: downloading x v1", False),
        ("\tundefined: x", False),
        ("", False),
        ("x.go:1:2: syntax error", False),
    ],
)
def test_lines_that_name_a_package(line: str, *, package: bool) -> None:
    assert is_package(line) is package


def test_a_build_that_fails_shows_why_and_leaves_nothing(tmp_path: Path, environ: dict[str, str], steps) -> None:  # type: ignore[no-untyped-def]
    cache = Cache(tmp_path / "cache")
    with pytest.raises(ClusterError, match=r"cannot find module .*; is the Go module proxy reachable"):
        components(cache, Shell(tmp_path / "log", environ | {"FAIL": "1"}), steps)
    assert not cache.has("components", module_key())


def test_the_programs_alone_need_go_and_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EMUGPU_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert programs.main() == 1
    error = capsys.readouterr().err
    assert "kube-programs: one thing is missing for the programs of Kubernetes; nothing was started:\n  go: " in error


def test_clients_on_the_path_are_used(tmp_path: Path, steps) -> None:  # type: ignore[no-untyped-def]
    for name in CLIENTS:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    found = clients(Cache(tmp_path / "cache"), Shell(tmp_path / "log", {"PATH": str(tmp_path)}), steps)
    assert found == Clients(tmp_path / "kind", tmp_path / "kubectl", tmp_path / "helm")
    assert steps.titles == []


def test_only_the_clients_are_built_where_one_is_missing(tmp_path: Path, environ: dict[str, str], steps) -> None:  # type: ignore[no-untyped-def]
    cache, shell = Cache(tmp_path / "cache"), Shell(tmp_path / "log", environ)
    assert missing_clients(cache, shell) == ("kubectl", "helm", "kind")
    built = clients(cache, shell, steps)
    assert built.kind.parent == built.helm.parent
    assert missing_clients(cache, shell) == () and not has_components(cache)
    assert steps.titles == ["build kubectl, helm, kind (2 to 3 minutes)"]


def test_an_existing_cluster_needs_no_kind(tmp_path: Path, environ: dict[str, str], steps) -> None:  # type: ignore[no-untyped-def]
    for name in ("kubectl", "helm"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\n")
        (tmp_path / "bin" / name).chmod(0o755)
    cache, shell = Cache(tmp_path / "cache"), Shell(tmp_path / "log", environ)
    assert missing_clients(cache, shell, with_kind=False) == ()
    assert clients(cache, shell, steps, with_kind=False).helm == tmp_path / "bin/helm"
    assert steps.titles == []
    assert missing_clients(cache, shell) == ("kind",)


def test_ours_come_first(tmp_path: Path, environ: dict[str, str], steps, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(programs, "module_key", lambda: "key")
    cache = Cache(tmp_path / "cache")
    cache.ensure("components", "key", lambda path: path.mkdir())
    found = clients(cache, Shell(tmp_path / "log", environ), steps)
    assert found.kind == cache.path("components", "key") / "kind"
