"""The programs of a cluster, built from one Go module if they can't be downloaded as releases."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster_harness import versions
from cluster_harness.cache import Cache, content_key, default_root
from cluster_harness.go_build import go_install
from cluster_harness.requirements.host import probe
from cluster_harness.requirements.message import require
from cluster_harness.requirements.work import PROGRAMS, Work
from cluster_harness.shell import Shell
from cluster_harness.steps import PlainSteps, Steps
from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.timing.host import monotonic_ns

CLIENTS = {"kubectl": "k8s.io/kubernetes/cmd/kubectl", "helm": "helm.sh/helm/v4/cmd/helm", "kind": "sigs.k8s.io/kind"}
"""The programs that run on this machine, with the packages they are built from. An existing cluster needs no kind."""

_STAMP_DATE = "2026-01-01T00:00:00Z"  # part of the binaries: with the real date each build would differ


@dataclass(frozen=True)
class Clients:
    """Paths of the programs that talk to a cluster."""

    kind: Path
    kubectl: Path
    helm: Path


def missing_clients(cache: Cache, shell: Shell, *, with_kind: bool = True) -> tuple[str, ...]:
    """The clients that `clients` would have to build."""
    if cache.has("components", module_key()) or cache.has("clients", _clients_key()):
        return ()
    names = [name for name in CLIENTS if with_kind or name != "kind"]
    return tuple(name for name in names if shutil.which(name, path=shell.environ.get("PATH")) is None)


def clients(cache: Cache, shell: Shell, steps: Steps, *, with_kind: bool = True) -> Clients:
    """The clients from our own build, else from the PATH, else built now (2 to 3 minutes). Raises ClusterError.

    `with_kind` False: a missing kind is no reason to build.
    """
    if cache.has("components", module_key()):
        return _in(cache.path("components", module_key()))
    on_path = {name: shutil.which(name, path=shell.environ.get("PATH")) for name in CLIENTS}
    if missing := missing_clients(cache, shell, with_kind=with_kind):
        title = f"build {', '.join(missing)} (2 to 3 minutes)"
        packages = tuple(CLIENTS.values())
        cache.ensure("clients", _clients_key(), lambda path: _install(path, packages, shell, steps, title))
    built = _in(cache.path("clients", _clients_key()))
    return Clients(**{name: Path(path) if path else getattr(built, name) for name, path in on_path.items()})


def _clients_key() -> str:
    return content_key("clients", module_key())


def _in(directory: Path) -> Clients:
    return Clients(**{name: directory / name for name in CLIENTS})


def has_components(cache: Cache) -> bool:
    return cache.has("components", module_key())


def components(cache: Cache, shell: Shell, steps: Steps) -> Path:
    """The directory with all programs of a cluster, statically linked. Raises ClusterError if the build fails."""
    title = "build the programs of Kubernetes (cold: 7 to 12 minutes on 2 cores)"
    packages = ("tool", "./coredns", "./pause")
    return cache.ensure("components", module_key(), lambda path: _install(path, packages, shell, steps, title))


def module_key() -> str:
    """The cache key of the programs: the module's files and the stamp."""
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


def _install(path: Path, packages: Sequence[str], shell: Shell, steps: Steps, title: str) -> None:
    path.mkdir()
    with steps.step(title) as report:
        go_install(shell, versions.TOOLS_MODULE, packages, linker_flags(), path, report)
    if (path / "server").exists():
        (path / "server").rename(path / "etcd")  # Go names a program after its import path's last element


def main() -> int:
    """`python -m cluster_harness.programs`: build what is missing, print the directory."""
    cache = Cache(default_root())
    steps = PlainSteps(lambda text: print(text, file=sys.stderr, flush=True), monotonic_ns)
    shell = Shell(cache.root / "logs" / "components.log", dict(os.environ))
    try:
        if not has_components(cache):
            require(probe(cache, shell), Work(PROGRAMS, builds_components=True))
        print(components(cache, shell, steps))
    except ClusterError as error:
        print(f"kube-programs: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
