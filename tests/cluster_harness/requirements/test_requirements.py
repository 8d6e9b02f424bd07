"""Everything that a command needs is checked at once: each missing thing alone, all together, and only what the work needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cluster_harness import versions
from cluster_harness.requirements.host import (
    CAPABILITY_BITS,
    PROGRAMS,
    Host,
    Volume,
    available_bytes,
    capabilities_in,
    has_buildkit,
    parse_go_version,
)
from cluster_harness.requirements.message import files_of, missing, require
from cluster_harness.requirements.requirements import REQUIREMENTS, disk_bytes, inotify_needed, memory_bytes
from cluster_harness.requirements.work import EXISTING_CLUSTER, OFFLINE, REGISTRY, Work
from cluster_harness.requirements.work import PROGRAMS as KUBE_PROGRAMS
from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.domain.units import GIB

CHECKOUT, CHART, KUBECONFIG = Path("/checkout"), Path("/checkout/charts/emugpu"), Path("/home/me/config")
CLIENTS = ("kubectl", "helm", "kind")
EVERYTHING = Work(
    OFFLINE,
    creates_nodes=3,
    builds_components=True,
    builds_root_file_system=True,
    builds_node_image=True,
    builds_images=True,
    checkout=CHECKOUT,
    chart=CHART,
)
WITH_REGISTRY = Work(REGISTRY, creates_nodes=3, clients=CLIENTS, builds_images=True, checkout=CHECKOUT, chart=CHART)
ON_EXISTING = Work(EXISTING_CLUSTER, clients=("kubectl", "helm"), chart=CHART, kubeconfig=KUBECONFIG)
ONLY_PROGRAMS = Work(KUBE_PROGRAMS, builds_components=True)
ALL_WORK = (EVERYTHING, WITH_REGISTRY, ON_EXISTING, ONLY_PROGRAMS)


def disk(free_bytes: int, *uses: str) -> dict[str, Volume]:
    return {use: Volume(Path("/cache"), 1, free_bytes) for use in uses or ("cache", "go", "engine")}


IDEAL = Host(
    programs=frozenset(PROGRAMS),
    is_root=True,
    capabilities=frozenset(CAPABILITY_BITS),
    memory_bytes=16 * GIB,
    volumes=disk(100 * GIB),
    inotify={"max_user_instances": 8192, "max_user_watches": 1 << 20},
    inotify_writable=True,
    buildx=True,
    pip=True,
    go_version=versions.go_toolchain(),
    files=frozenset({CHECKOUT / "images", CHART / "Chart.yaml", KUBECONFIG}),
)
"""A machine on which no engine runs yet."""

Change = Callable[[Host], Host]


def without(*programs: str) -> Change:
    return lambda host: replace(host, programs=host.programs - set(programs))


def no_go(host: Host) -> Host:
    return replace(host, programs=host.programs - {"go"}, go_version=None)


def low_inotify(host: Host) -> Host:
    return replace(host, inotify={"max_user_instances": 64, "max_user_watches": 100}, inotify_writable=False)


MISSING: dict[str, tuple[Change, str, str]] = {
    "docker": (without("docker"), "isn't installed", "docker.io"),
    "dockerd": (without("dockerd"), "isn't installed", "docker.io"),
    "containerd": (without("containerd"), "isn't installed", "containerd"),
    "runc": (without("runc"), "isn't installed", "runc"),
    "iptables": (without("iptables"), "isn't installed", "iptables"),
    "debootstrap": (without("debootstrap"), "isn't installed", "debootstrap"),
    "unshare": (without("unshare"), "isn't installed", "util-linux"),
    "mount": (without("mount"), "isn't installed", "mount"),
    "chroot": (without("chroot"), "isn't installed", "coreutils"),
    "tar": (without("tar"), "isn't installed", "tar"),
    "go": (no_go, "isn't installed; it builds Kubernetes", "https://go.dev/doc/install"),
    "C compiler": (without("cc", "gcc", "clang"), "isn't installed; it compiles", "gcc libc6-dev"),
    "pip": (lambda host: replace(host, pip=False), "this Python has none", "ensurepip"),
    "checkout": (lambda host: replace(host, files=host.files - {CHECKOUT / "images"}), "has no images/", "checkout"),
    "chart": (lambda host: replace(host, files=host.files - {CHART / "Chart.yaml"}), "has no Chart.yaml", "--chart"),
    "disk space": (lambda host: replace(host, volumes=disk(GIB)), "GiB needed, 1.0 GiB free", "EMUGPU_CACHE"),
    "memory": (lambda host: replace(host, memory_bytes=GIB), "3.0 GiB needed, 1.0 GiB available", "--nodes"),
    "inotify limits": (low_inotify, "fs.inotify.max_user_instances is 64, at least 88 needed", "sudo sysctl"),
}
"""What can be missing on a machine that builds everything: the machine without it, the problem, and the fix."""


def message(host: Host, work: Work) -> str:
    with pytest.raises(ClusterError) as caught:
        require(host, work)
    return str(caught.value)


@pytest.mark.parametrize("work", ALL_WORK, ids=lambda work: work.purpose)
def test_nothing_is_missing_on_a_machine_that_has_everything(work: Work) -> None:
    require(IDEAL, work)


@pytest.mark.parametrize("name", MISSING)
def test_each_missing_thing_alone_is_the_only_one_reported(name: str) -> None:
    change, problem, fix = MISSING[name]
    host = change(IDEAL)
    assert [one.name for one in missing(host, EVERYTHING)] == [name]
    text = message(host, EVERYTHING)
    assert text.startswith(f"one thing is missing for {OFFLINE}; nothing was started:\n  {name}: ")
    assert problem in text and fix in text


def test_all_missing_things_are_reported_at_once_with_one_command() -> None:
    host = IDEAL
    for change, _problem, _fix in MISSING.values():
        host = change(host)
    host = replace(host, is_root=False, capabilities=frozenset())
    assert [one.name for one in missing(host, EVERYTHING)] == [
        *(requirement.name for requirement in REQUIREMENTS if requirement.name in {*MISSING, "root"}),
    ]
    text = message(host, EVERYTHING)
    assert text.startswith(f"{len(MISSING) + 1} things are missing")
    packages = "containerd coreutils debootstrap docker.io gcc iptables libc6-dev mount runc tar util-linux"
    assert text.endswith(f"\n  to install: sudo apt-get install -y {packages}")
    assert "run it as root" in text


def test_another_distribution_gets_the_names_of_the_packages() -> None:
    host = without("apt-get")(without("debootstrap")(IDEAL))
    assert message(host, EVERYTHING).endswith(
        "with your package manager, by the names of Debian's packages: debootstrap"
    )


@pytest.mark.parametrize(
    ("work", "names"),
    [
        (WITH_REGISTRY, {"docker", "root", "go", "checkout", "chart", "disk space", "memory"}),
        (ON_EXISTING, {"go", "chart", "kubeconfig", "disk space"}),
        (ONLY_PROGRAMS, {"go", "disk space", "memory"}),
    ],
    ids=lambda value: value.purpose if isinstance(value, Work) else "",
)
def test_each_work_needs_only_its_own_things(work: Work, names: set[str]) -> None:
    nothing = Host(frozenset(), False, frozenset(), 0, disk(0), {}, True)
    engine = {"dockerd", "containerd", "runc", "iptables"} if work.purpose == REGISTRY else set()
    assert {one.name for one in missing(nothing, work)} == names | engine


def test_a_running_engine_needs_no_programs_to_start_one_and_no_root() -> None:
    programs = frozenset({"docker"})
    host = replace(IDEAL, programs=programs, is_root=False, capabilities=frozenset(), engine_version="28.0")
    require(host, WITH_REGISTRY)
    assert {one.name for one in missing(host, EVERYTHING)} >= {"root", "debootstrap"}


def test_cached_parts_need_nothing() -> None:
    bare = Host(frozenset({"docker"}), False, frozenset(), 4 * GIB, disk(10 * GIB), {}, True, engine_version="28.0")
    require(bare, Work(OFFLINE, creates_nodes=3))
    require(bare, Work(EXISTING_CLUSTER))


@pytest.mark.parametrize(
    ("change", "problem", "fix"),
    [
        ({"systemd": True}, "Docker engine: doesn't answer", "systemctl start docker"),
        ({"docker_host": "tcp://lab:2375"}, "DOCKER_HOST=tcp://lab:2375 doesn't answer", "unset DOCKER_HOST"),
        (
            {
                "systemd": True,
                "engine_problem": "permission denied while trying to connect to the Docker daemon socket",
            },
            "this user may not use it",
            "usermod -aG docker",
        ),
    ],
)
def test_an_engine_that_somebody_else_must_start(change: dict[str, object], problem: str, fix: str) -> None:
    text = message(replace(IDEAL, **change), WITH_REGISTRY)  # type: ignore[arg-type]
    assert text.startswith("one thing is missing")
    assert problem in text and fix in text


def test_root_without_its_capabilities_is_told_which() -> None:
    host = replace(IDEAL, capabilities=frozenset({"CAP_SYS_ADMIN"}))
    assert "root lacks CAP_NET_ADMIN, CAP_SYS_CHROOT, CAP_MKNOD here" in message(host, EVERYTHING)
    require(replace(host, capabilities=frozenset({"CAP_SYS_ADMIN", "CAP_NET_ADMIN"})), WITH_REGISTRY)


@pytest.mark.parametrize(
    ("version", "downloads", "problem"),
    [
        ((1, 26, 2), False, "is 1.26.2, older than 1.26.3"),
        ((1, 20, 5), True, "is 1.20.5, older"),
        ((1, 21, 0), True, ""),
    ],
)
def test_an_old_go_is_enough_where_it_fetches_its_toolchain(
    version: tuple[int, ...], downloads: bool, problem: str
) -> None:
    host = replace(IDEAL, go_version=version, go_downloads=downloads)
    if problem:
        assert problem in message(host, ON_EXISTING)
    else:
        require(host, ON_EXISTING)


def test_newer_docker_needs_its_build_plugin() -> None:
    text = message(replace(IDEAL, buildx=False), WITH_REGISTRY)
    assert text.startswith("one thing is missing") and text.endswith("apt-get install -y docker-buildx")
    require(replace(IDEAL, buildx=False), EVERYTHING)


def test_a_missing_client_is_named_beside_go() -> None:
    text = message(no_go(IDEAL), replace(ON_EXISTING, clients=("helm",)))
    assert "it builds helm, which are not on the PATH" in text
    assert "install Go 1.26.3 or later (https://go.dev/doc/install), or helm" in text


def test_a_kubeconfig_that_does_not_exist() -> None:
    host = replace(IDEAL, files=IDEAL.files - {KUBECONFIG})
    assert f"there is no such kubeconfig: {KUBECONFIG}" in message(host, ON_EXISTING)
    assert set(files_of(ON_EXISTING)) == {CHART / "Chart.yaml", KUBECONFIG}


def test_disk_space_is_added_up_by_file_system() -> None:
    need = disk_bytes(EVERYTHING)
    total = sum(need.values())
    enough = {use: Volume(Path(f"/{use}"), index, need[use]) for index, use in enumerate(need)}
    require(replace(IDEAL, volumes=enough), EVERYTHING)
    assert missing(replace(IDEAL, volumes=disk(total)), EVERYTHING) == []
    assert "/cache: " in message(replace(IDEAL, volumes=disk(total - 1)), EVERYTHING)
    short = enough | {"engine": replace(enough["engine"], free_bytes=need["engine"] - 1)}
    assert "disk space: /engine: " in message(replace(IDEAL, volumes=short), EVERYTHING)


def test_an_engine_elsewhere_has_a_disk_that_nobody_knows() -> None:
    host = replace(IDEAL, engine_version="28.0", volumes=disk(6 * GIB, "cache", "go"))
    require(host, replace(WITH_REGISTRY, creates_nodes=30))


def test_more_nodes_need_more() -> None:
    few, many = replace(EVERYTHING, creates_nodes=2), replace(EVERYTHING, creates_nodes=40)
    assert disk_bytes(many)["engine"] > disk_bytes(few)["engine"]
    assert memory_bytes(many) > memory_bytes(few) == memory_bytes(ONLY_PROGRAMS)
    assert inotify_needed(4)["max_user_instances"] <= 128 < inotify_needed(5)["max_user_instances"]


def test_an_engine_of_our_own_raises_inotify_limits_where_it_can() -> None:
    low = replace(IDEAL, inotify={"max_user_instances": 64, "max_user_watches": 100})
    require(low, EVERYTHING)
    assert "max_user_watches is 100" in message(replace(low, engine_version="28.0"), EVERYTHING)


def test_what_the_kernel_says() -> None:
    assert capabilities_in("CapInh:\t0\nCapEff:\t0000000008241000\n") == frozenset(CAPABILITY_BITS)
    assert capabilities_in("CapEff:\t0000000000000000\n") == frozenset()
    assert available_bytes("MemTotal: 9 kB\nMemAvailable:    2048 kB\n") == 2 << 20
    assert available_bytes("") == 0


def test_what_programs_say() -> None:
    assert parse_go_version("go version go1.26.8 linux/amd64") == (1, 26, 8)
    assert parse_go_version("go version go1.27 linux/amd64") == (1, 27, 0)
    assert parse_go_version("") is None
    assert has_buildkit("Docker version 20.10.24+dfsg1, build 297e128", "")
    assert not has_buildkit("Docker version 28.0.1, build 068a01e", "")
    assert has_buildkit("Docker version 28.0.1, build 068a01e", "github.com/docker/buildx v0.21.1")
