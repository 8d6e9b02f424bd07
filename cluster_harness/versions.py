"""All pinned versions: those of Go modules are read from go.mod, the others are written here."""

from __future__ import annotations

import re
from pathlib import Path

from emulator_runtime.domain.errors import ClusterError

TOOLS_MODULE = Path(__file__).parent / "tools"
"""The Go module that pins and builds Kubernetes, etcd, CoreDNS, containerd, kind and helm."""

STOCK_NODE_IMAGE = "kindest/node:v1.37.0@sha256:a1ed56cfb0e7b93589bdf97c8cd566405a265939e3620fc4f5de89adff580ae5"
"""The node image that kind v0.33.0 names as its default (kind, pkg/apis/config/defaults/image.go)."""

DEBIAN_SUITE = "bookworm"
"""The release of Debian in node images that are built here: its systemd 252 still runs on cgroup v1; its Python is 3.11."""

IMAGE_REPOSITORY = "emugpu.local"
"""Prefix of images that exist only in node images; it is no registry."""

_REQUIREMENT = r"^\s*(?:require )?{module} (v\S+)"


def go_version(module: str, go_mod: Path = TOOLS_MODULE / "go.mod") -> str:
    """The version of a Go module in go.mod, such as v1.36.3. Raises ClusterError if go.mod doesn't require it."""
    found = re.search(_REQUIREMENT.format(module=re.escape(module)), go_mod.read_text(encoding="utf-8"), re.MULTILINE)
    if not found:
        raise ClusterError(f"{go_mod}: has no line for {module}; add it with `go get {module}`")
    return found[1]


def go_toolchain(go_mod: Path = TOOLS_MODULE / "go.mod") -> tuple[int, ...]:
    """The Go that builds the module: the `go` line of go.mod. Raises ClusterError if there is none."""
    found = re.search(r"^go (\d+)\.(\d+)\.(\d+)$", go_mod.read_text(encoding="utf-8"), re.MULTILINE)
    if not found:
        raise ClusterError(f"{go_mod}: has no line `go X.Y.Z`; add it with `go mod edit -go=X.Y.Z`")
    return tuple(map(int, found.groups()))


def kubernetes() -> str:
    return go_version("k8s.io/kubernetes")


def containerd() -> str:
    return go_version("github.com/containerd/containerd/v2")
