"""Facts about this machine that requirements are checked against, probed once."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cluster_harness.cache import Cache
from cluster_harness.engine import SYSTEMD, Engine, running_engine
from cluster_harness.shell import Shell
from emulator_runtime.domain.errors import ClusterError

PROGRAMS = (
    "docker",
    "dockerd",
    "containerd",
    "runc",
    "iptables",
    "debootstrap",
    "unshare",
    "mount",
    "chroot",
    "tar",
    "go",
    "cc",
    "gcc",
    "clang",
    "apt-get",
)
"""The programs that requirements name. `programs.missing_clients` looks for the clients."""

CAPABILITY_BITS = {
    "CAP_NET_ADMIN": 12,
    "CAP_SYS_CHROOT": 18,
    "CAP_SYS_ADMIN": 21,
    "CAP_MKNOD": 27,
}  # linux/capability.h
_ANSWER_TIMEOUT_S = 15.0


@dataclass(frozen=True)
class Volume:
    """Free space of the file system below `path`; `device` tells file systems apart."""

    path: Path
    device: int
    free_bytes: int


@dataclass(frozen=True)
class Host:
    """`volumes` by use: "cache", "go", and "engine" where the engine's data directory is known.

    `engine_version`: of the Docker engine that answers, "" where none does; `engine_problem`: what the client printed then.
    `go_version`: (1, 26, 3), None where there is no Go. `go_downloads`: whether Go may fetch a newer toolchain itself.
    """

    programs: frozenset[str]
    is_root: bool
    capabilities: frozenset[str]
    memory_bytes: int
    volumes: Mapping[str, Volume]
    inotify: Mapping[str, int]
    inotify_writable: bool
    engine_version: str = ""
    engine_problem: str = ""
    docker_host: str = ""
    systemd: bool = False
    buildx: bool = False
    pip: bool = False
    go_version: tuple[int, ...] | None = None
    go_downloads: bool = False
    files: frozenset[Path] = field(default_factory=frozenset)

    @property
    def starts_engine(self) -> bool:
        """Whether `up` would start an engine: none answers, systemd doesn't manage one, and DOCKER_HOST names none."""
        return not (self.engine_version or self.docker_host or self.systemd)


def probe(cache: Cache, shell: Shell, files: Iterable[Path] = ()) -> Host:
    """Collects the facts without changing anything. `files`: paths whose existence is checked."""
    path = shell.environ.get("PATH")
    programs = frozenset(name for name in PROGRAMS if shutil.which(name, path=path))
    engine = running_engine(cache, shell)
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    memory = Path("/proc/meminfo").read_text(encoding="ascii", errors="replace")
    limits = Path("/proc/sys/fs/inotify")
    go = _ask(shell, "go", "version") if "go" in programs else ""
    return Host(
        programs=programs,
        is_root=os.geteuid() == 0,
        capabilities=capabilities_in(status),
        memory_bytes=available_bytes(memory),
        volumes={
            use: volume for use, place in _places(cache, shell, engine, programs).items() if (volume := _volume(place))
        },
        inotify={
            name: int((limits / name).read_text(encoding="ascii"))
            for name in ("max_user_instances", "max_user_watches")
        },
        inotify_writable=os.access(limits / "max_user_instances", os.W_OK),
        engine_version=engine.version if engine else "",
        engine_problem="" if engine or "docker" not in programs else _ask(shell, "docker", "version", of_stderr=True),
        docker_host=shell.environ.get("DOCKER_HOST", ""),
        systemd=SYSTEMD.exists(),
        buildx="docker" in programs and _has_buildkit(shell),
        pip=importlib.util.find_spec("pip") is not None,
        go_version=parse_go_version(go),
        go_downloads="go" in programs and _ask(shell, "go", "env", "GOTOOLCHAIN") != "local",
        files=frozenset(file for file in files if file.exists()),
    )


def _has_buildkit(shell: Shell) -> bool:
    return has_buildkit(_ask(shell, "docker", "--version"), _ask(shell, "docker", "buildx", "version"))


def _ask(shell: Shell, *argv: str, of_stderr: bool = False) -> str:
    """The output of a program; "" if it fails or hangs. It runs outside of any Go module, whose toolchain Go would download."""
    try:
        done = shell.attempt(*argv, cwd=Path("/"), timeout_s=_ANSWER_TIMEOUT_S)
    except ClusterError:
        return ""
    if of_stderr:
        return done.stderr.strip()
    return done.stdout.strip() if done.ok else ""


def _places(cache: Cache, shell: Shell, engine: Engine | None, programs: frozenset[str]) -> dict[str, Path]:
    """The path of each use of disk space; an engine that `up` didn't start names its own data directory."""
    places = {"cache": cache.root, "engine": cache.root}
    if engine is not None and engine.own is None:
        root = _ask(engine.shell, "docker", "info", "-f", "{{.DockerRootDir}}")
        places["engine"] = Path(root or "/nonexistent")
    if "go" in programs:
        places["go"] = Path(_ask(shell, "go", "env", "GOCACHE") or cache.root)
    return places


def _volume(path: Path) -> Volume | None:
    """None for a directory that can't exist here: an engine on another machine."""
    existing = next((p for p in (path, *path.parents) if p.exists()), None)
    if existing is None or path == Path("/nonexistent"):
        return None
    found = os.statvfs(existing)
    return Volume(path, existing.stat().st_dev, found.f_bavail * found.f_frsize)


def capabilities_in(status: str) -> frozenset[str]:
    """The capabilities of CAPABILITY_BITS that a process with this /proc/<pid>/status has (proc(5): CapEff)."""
    line = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    held = int(line[1], 16) if line else 0
    return frozenset(name for name, bit in CAPABILITY_BITS.items() if held >> bit & 1)


def available_bytes(meminfo: str) -> int:
    """MemAvailable of /proc/meminfo (proc(5)); a kernel without it gives 0."""
    line = re.search(r"^MemAvailable:\s*(\d+) kB$", meminfo, re.MULTILINE)
    return int(line[1]) << 10 if line else 0


def parse_go_version(text: str) -> tuple[int, ...] | None:
    """From `go version go1.26.8 linux/amd64`: (1, 26, 8)."""
    match = re.search(r"\bgo(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in match.groups()) if match else None


def has_buildkit(client_version: str, buildx: str) -> bool:
    """Whether `DOCKER_BUILDKIT=1 docker build` works: from Docker 23 on it needs the buildx plugin."""
    major = re.search(r"version (\d+)\.", client_version)
    return bool(buildx) or (major is not None and int(major[1]) < 23)
