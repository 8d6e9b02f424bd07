"""All requirements: the work that needs each one, its check, and what to do if it is not met.

Ports are no requirement: kind publishes the API server on a port of 127.0.0.1 that the engine chooses, an engine of our own
listens on a Unix socket. nft, conntrack, iproute2 and CNI plugins are packages of the node's root file system, not of the host.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from cluster_harness.requirements.host import CAPABILITY_BITS, Host
from cluster_harness.requirements.work import Work
from cluster_harness.versions import go_toolchain
from emulator_runtime.domain.units import GIB, MIB

_FETCHES_TOOLCHAINS = (1, 21, 0)
"""From this version on, Go fetches the toolchain that go.mod asks for, unless GOTOOLCHAIN=local."""


@dataclass(frozen=True)
class Missing:
    """An unmet requirement: `problem` says what is wrong; Debian `packages`, or else the sentence `fix`, say what to do."""

    name: str
    problem: str
    packages: tuple[str, ...] = ()
    fix: str = ""


@dataclass(frozen=True)
class Requirement:
    """One requirement. `needed`: whether the work needs it on this host. `check` is then called and returns None if it is met."""

    name: str
    needed: Callable[[Host, Work], bool]
    check: Callable[[Host, Work], Missing | None]


def _program(name: str, package: str, use: str, needed: Callable[[Host, Work], bool]) -> Requirement:
    def check(host: Host, _work: Work) -> Missing | None:
        return None if name in host.programs else Missing(name, f"isn't installed; {use}", (package,))

    return Requirement(name, needed, check)


def _on_kind(_host: Host, work: Work) -> bool:
    return work.on_kind


def _own_engine(host: Host, work: Work) -> bool:
    return work.on_kind and host.starts_engine


def _debian(_host: Host, work: Work) -> bool:
    return work.installs_debian


def _debootstrap(_host: Host, work: Work) -> bool:
    return work.offline and work.builds_root_file_system


def _as_root(host: Host, work: Work) -> bool:
    return _own_engine(host, work) or work.installs_debian


def _root(host: Host, work: Work) -> Missing | None:
    if host.is_root:
        return None
    uses = ["starts a Docker engine, since none answers"] if _own_engine(host, work) else []
    uses += ["installs Debian packages in a chroot"] if work.installs_debian else []
    return Missing("root", f"this command {' and '.join(uses)}", fix="run it as root (sudo -E)")


def _capabilities(host: Host, work: Work) -> Missing | None:
    """Only checked for root: other users lack all capabilities, and get the message about root instead."""
    wanted = {"CAP_SYS_ADMIN", *(("CAP_NET_ADMIN",) if _own_engine(host, work) else ())}
    wanted |= {"CAP_SYS_CHROOT", "CAP_MKNOD"} if work.installs_debian else set()
    lacking = sorted(wanted - host.capabilities, key=list(CAPABILITY_BITS).index)
    if not lacking or not host.is_root:
        return None
    fix = "run it on a machine, or in a container started with these capabilities (docker run --privileged)"
    return Missing("capabilities", f"root lacks {', '.join(lacking)} here", fix=fix)


def _engine(host: Host, _work: Work) -> Missing | None:
    """An engine that the user must start. Without a docker client nothing is known about it."""
    if host.engine_version or host.starts_engine or "docker" not in host.programs:
        return None
    if "permission denied" in host.engine_problem:
        fix = "add yourself to the group docker (sudo usermod -aG docker $USER, then log in again), or use sudo -E"
        return Missing("Docker engine", "this user may not use it", fix=fix)
    if host.docker_host:
        fix = "start that engine, or unset DOCKER_HOST"
        return Missing("Docker engine", f"DOCKER_HOST={host.docker_host} doesn't answer", fix=fix)
    return Missing("Docker engine", "doesn't answer", fix="systemctl start docker")


def _buildx(host: Host, _work: Work) -> Missing | None:
    if host.buildx or "docker" not in host.programs:
        return None
    return Missing("docker buildx", "isn't installed; it builds the images", ("docker-buildx",))


def _go(host: Host, work: Work) -> Missing | None:
    needed = go_toolchain()
    wanted = ".".join(map(str, needed))
    uses = [f"builds {', '.join(work.clients)}, which are not on the PATH"] if work.clients else []
    uses += ["builds Kubernetes"] if work.builds_components else []
    uses += ["builds nvidia-smi for the product's image"] if work.offline and work.builds_images else []
    fix = f"install Go {wanted} or later (https://go.dev/doc/install)"
    fix += f", or {', '.join(work.clients)}" if work.clients and len(uses) == 1 else ""
    if host.go_version is None:
        return Missing("go", f"isn't installed; it {' and '.join(uses)}", fix=fix)
    if host.go_version >= needed or (host.go_downloads and host.go_version >= _FETCHES_TOOLCHAINS):
        return None
    found = ".".join(map(str, host.go_version))
    return Missing("go", f"is {found}, older than {wanted}; it {' and '.join(uses)}", fix=fix)


def _compiler(host: Host, _work: Work) -> Missing | None:
    if host.programs & {"cc", "gcc", "clang"}:
        return None
    problem = "isn't installed; it compiles the CUDA libraries of the product's image"
    return Missing("C compiler", problem, ("gcc", "libc6-dev"))


def _pip(host: Host, _work: Work) -> Missing | None:
    if host.pip:
        return None
    problem = "this Python has none; it installs the Python packages of the product's image"
    return Missing("pip", problem, fix="python -m ensurepip, or recreate the virtual environment with pip")


def _checkout(host: Host, work: Work) -> Missing | None:
    assert work.checkout is not None
    if work.checkout / "images" in host.files:
        return None
    problem = f"{work.checkout} has no images/, from which the product's images are built"
    return Missing("checkout", problem, fix="run this in a checkout of the project (pip install -e .)")


def _chart(host: Host, work: Work) -> Missing | None:
    assert work.chart is not None
    if work.chart / "Chart.yaml" in host.files:
        return None
    return Missing("chart", f"{work.chart} has no Chart.yaml", fix="run this in a checkout, or give --chart DIRECTORY")


def _kubeconfig(host: Host, work: Work) -> Missing | None:
    if work.kubeconfig in host.files:
        return None
    return Missing(
        "kubeconfig", f"there is no such kubeconfig: {work.kubeconfig}", fix="give another with --kubeconfig"
    )


NODE_DISK_BYTES = 600 * MIB
"""What a node's containers and volume take of the engine's disk, with the product running: 490 MiB measured."""


def disk_bytes(work: Work) -> dict[str, int]:
    """Space by use. Measured on amd64 (Go 1.26.8, Kubernetes 1.36.3, Debian 12), rounded up by about a fifth, with copies that
    exist during a build only: Go's module and build caches 4.8 GiB, components 0.75 GiB, root file system 0.43 GiB and its
    copy as a tar file, node images 0.75 GiB, product images 0.2 GiB. With a registry: sizes of the images that it names."""
    need: defaultdict[str, int] = defaultdict(int)
    if work.clients:
        need["go"] += 2500 * MIB
        need["cache"] += 250 * MIB
    if work.builds_components:
        need["go"] += 6 * GIB
        need["cache"] += 1 * GIB
    if work.builds_root_file_system:
        need["cache"] += 600 * MIB
    if work.builds_node_image:
        need["cache"] += 1500 * MIB
        need["engine"] += 1 * GIB
    if work.builds_images:
        need["cache"] += 600 * MIB
        need["engine"] += 300 * MIB if work.offline else 3 * GIB
    if work.creates_nodes:
        need["engine"] += work.creates_nodes * NODE_DISK_BYTES + (0 if work.offline else 2 * GIB)
    return dict(need)


def _disk(host: Host, work: Work) -> Missing | None:
    """Adds up the uses that share a file system."""
    wanted: defaultdict[int, int] = defaultdict(int)
    paths: defaultdict[int, list[str]] = defaultdict(list)
    free: dict[int, int] = {}
    for use, amount in disk_bytes(work).items():
        if volume := host.volumes.get(use):
            wanted[volume.device] += amount
            free[volume.device] = volume.free_bytes
            if str(volume.path) not in paths[volume.device]:
                paths[volume.device].append(str(volume.path))
    short = [
        f"{' and '.join(paths[device])}: {amount / GIB:.1f} GiB needed, {free[device] / GIB:.1f} GiB free"
        for device, amount in wanted.items()
        if amount > free[device]
    ]
    fix = "free some, or set EMUGPU_CACHE (and GOCACHE, GOMODCACHE) to directories on a larger disk"
    return Missing("disk space", "; ".join(short), fix=fix) if short else None


BUILD_MEMORY_BYTES = 3 * GIB
"""Linking kube-apiserver takes 1.8 GiB in one process, measured; Go compiles and links on each core."""


def memory_bytes(work: Work) -> int:
    """For nodes: 650 MiB for the control plane and 190 to 330 MiB for a worker with the product's pods, measured."""
    nodes = 768 * MIB + work.creates_nodes * 320 * MIB if work.creates_nodes else 0
    return max(BUILD_MEMORY_BYTES if work.builds_components else 0, nodes)


def _memory(host: Host, work: Work) -> Missing | None:
    wanted = memory_bytes(work)
    if host.memory_bytes >= wanted:
        return None
    problem = f"{wanted / GIB:.1f} GiB needed, {host.memory_bytes / GIB:.1f} GiB available"
    return Missing("memory", problem, fix="end other programs, or use fewer nodes (--nodes)")


def inotify_needed(nodes: int) -> dict[str, int]:
    """A control plane uses 27 instances and 206 watches, a worker 13 and 132 to 174, measured while idle; starting nodes use
    more: with 128 instances the kubelets of a fifth node died."""
    return {"max_user_instances": 16 + 24 * nodes, "max_user_watches": 512 * nodes}


def _inotify(host: Host, work: Work) -> Missing | None:
    """An engine of our own raises the limits itself."""
    if host.starts_engine and host.inotify_writable:
        return None
    wanted = inotify_needed(work.creates_nodes)
    low = [name for name, least in wanted.items() if host.inotify.get(name, least) < least]
    if not low:
        return None
    words = ", ".join(f"fs.inotify.{name} is {host.inotify[name]}, at least {wanted[name]} needed" for name in low)
    values = " ".join(f"fs.inotify.{name}={8 * 1024 if name.endswith('instances') else 1 << 20}" for name in low)
    return Missing("inotify limits", f"{words} for {work.creates_nodes} nodes", fix=f"sudo sysctl {values}")


REQUIREMENTS = (
    _program("docker", "docker.io", "nodes are its containers", _on_kind),
    _program("dockerd", "docker.io", "no Docker engine answers, so one is started", _own_engine),
    _program("containerd", "containerd", "the Docker engine runs containers with it", _own_engine),
    _program("runc", "runc", "the Docker engine runs containers with it", _own_engine),
    _program("iptables", "iptables", "the Docker engine connects containers with it", _own_engine),
    Requirement("Docker engine", _on_kind, _engine),
    Requirement("docker buildx", lambda _h, w: w.on_kind and not w.offline and w.builds_images, _buildx),
    _program(
        "debootstrap",
        "debootstrap",
        "it installs the nodes' root file system",
        _debootstrap,
    ),
    _program(
        "unshare",
        "util-linux",
        "debootstrap runs in a mount namespace",
        _debootstrap,
    ),
    _program("mount", "mount", "debootstrap mounts /proc", _debootstrap),
    _program("chroot", "coreutils", "images are built in a Debian root file system", _debian),
    _program("tar", "tar", "the node image is imported as a tar file", lambda _h, w: w.offline and w.builds_node_image),
    Requirement("go", lambda _h, w: w.builds_go, _go),
    Requirement("C compiler", lambda _h, w: w.offline and w.builds_images, _compiler),
    Requirement("pip", lambda _h, w: w.offline and w.builds_images, _pip),
    Requirement("root", _as_root, _root),
    Requirement("capabilities", _as_root, _capabilities),
    Requirement("checkout", lambda _h, w: w.checkout is not None, _checkout),
    Requirement("chart", lambda _h, w: w.chart is not None, _chart),
    Requirement("kubeconfig", lambda _h, w: w.kubeconfig is not None, _kubeconfig),
    Requirement("disk space", lambda _h, _w: True, _disk),
    Requirement("memory", lambda _h, _w: True, _memory),
    Requirement("inotify limits", lambda _h, w: w.creates_nodes > 0, _inotify),
)
