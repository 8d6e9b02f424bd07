"""The programs of a cluster, built from one Go module by the Go toolchain: needed where releases can't be downloaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster_harness import versions
from cluster_harness.cache import Cache, content_key, default_root
from cluster_harness.shell import Shell
from cluster_harness.steps import Note, PlainSteps, Steps
from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.timing.host import monotonic_ns

CLIENTS = {"kind": "sigs.k8s.io/kind", "kubectl": "k8s.io/kubernetes/cmd/kubectl", "helm": "helm.sh/helm/v4/cmd/helm"}
"""What every way to a cluster needs on this machine, with the package it is built from."""

_STAMP_DATE = "2026-01-01T00:00:00Z"  # part of the binaries: a real date would make each build another one
_WANTED_GO = "install Go 1.26 or later, or put {missing} on the PATH"


@dataclass(frozen=True)
class Clients:
    """Paths of the programs that talk to a cluster."""

    kind: Path
    kubectl: Path
    helm: Path


def clients(cache: Cache, shell: Shell, steps: Steps) -> Clients:
    """Ours where they are built, else those on the PATH, else they are built now (2-3 minutes).

    Raises ClusterError where one is missing and there is no Go.
    """
    if cache.has("components", module_key()):
        directory = cache.path("components", module_key())
        return Clients(**{name: directory / name for name in CLIENTS})
    on_path = {name: shutil.which(name, path=shell.environ.get("PATH")) for name in CLIENTS}
    missing = [name for name, path in on_path.items() if path is None]
    built = None
    if missing:
        key = content_key("clients", module_key())
        packages = tuple(CLIENTS.values())
        built = cache.ensure("clients", key, lambda path: _install(path, packages, shell, steps, ", ".join(missing)))
    return Clients(**{name: Path(path) if path else _in(built, name) for name, path in on_path.items()})


def _in(directory: Path | None, name: str) -> Path:
    assert directory is not None
    return directory / name


def components(cache: Cache, shell: Shell, steps: Steps) -> Path:
    """The directory with all programs of a cluster, static; 7 minutes on two cores where nothing is cached.

    Raises ClusterError where Go is missing or the build fails.
    """
    packages = ("tool", "./coredns", "./pause")
    return cache.ensure("components", module_key(), lambda path: _install(path, packages, shell, steps, "the programs"))


def module_key() -> str:
    """Names what is built: the module's files and the stamp."""
    sources = ("go.mod", "go.sum", "coredns", "pause")
    return content_key(*(versions.TOOLS_MODULE / name for name in sources), linker_flags())


def linker_flags() -> str:
    """Kubernetes takes its version from variables that the linker sets; unstamped programs call themselves v0.0.0.

    The names are those of hack/lib/version.sh in k8s.io/kubernetes.
    """
    version = versions.kubernetes()
    major, minor, _patch = version.removeprefix("v").split(".", 2)
    values = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "buildDate": _STAMP_DATE,
        "gitCommit": "0" * 40,
    }
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    flags = [f"-X {package}.{name}={value}" for package in packages for name, value in values.items()]
    flags.append(f"-X github.com/containerd/containerd/v2/version.Version={versions.containerd()}")
    return " ".join(["-s", "-w", *flags])


def _install(path: Path, packages: Sequence[str], shell: Shell, steps: Steps, what: str) -> None:
    go = shutil.which("go", path=shell.environ.get("PATH"))
    if go is None:
        raise ClusterError(f"{what}: can't be built without Go; {_WANTED_GO.format(missing=what)}")
    path.mkdir()
    with steps.step("build the cluster's programs (cold: 7 min on 2 cores)") as note:
        _go_install(go, path, packages, shell, note)
    if (path / "server").exists():
        (path / "server").rename(path / "etcd")  # the last element of etcd's import path names nothing


def _go_install(go: str, path: Path, packages: Sequence[str], shell: Shell, note: Note) -> None:
    environ = {**shell.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOBIN": str(path)}
    argv = [go, "install", "-v", "-trimpath", "-ldflags", linker_flags(), *packages]
    compiled, said = 0, ""
    with subprocess.Popen(
        argv, cwd=versions.TOOLS_MODULE, env=environ, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as build:
        assert build.stderr is not None
        try:
            for line in build.stderr:
                compiled, said = compiled + 1, line.strip() or said
                note(f"{compiled} packages: {said}")
        except BaseException:
            build.kill()
            raise
    if build.returncode:
        raise ClusterError(f"go install in {versions.TOOLS_MODULE} failed: {said}; is the Go module proxy reachable?")


def search_path(directory: Path, environ: dict[str, str]) -> str:
    """A PATH with `directory` in front."""
    return os.pathsep.join([str(directory), environ.get("PATH", os.defpath)])


def main() -> None:
    """`python -m cluster_harness.programs`: build what is missing, print the directory."""
    cache = Cache(default_root())
    steps = PlainSteps(lambda text: print(text, file=sys.stderr, flush=True), monotonic_ns)
    print(components(cache, Shell(cache.root / "logs" / "components.log", dict(os.environ)), steps))


if __name__ == "__main__":
    main()
