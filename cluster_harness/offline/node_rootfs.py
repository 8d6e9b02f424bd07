"""The root file system of our node image: Debian packages, without the services that only real machines need."""

from __future__ import annotations

import shutil
from pathlib import Path

from cluster_harness import versions
from cluster_harness.cache import Cache, content_key
from cluster_harness.shell import Shell
from cluster_harness.steps import Progress, Report, Steps

PACKAGES = (
    *("systemd", "systemd-sysv", "dbus"),
    *("iproute2", "iptables", "nftables", "conntrack", "ethtool", "socat"),  # the kubelet, kube-proxy, port forwarding
    *("kmod", "procps", "ca-certificates", "containernetworking-plugins", "runc"),
)

_UNUSED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "var/cache/apt", "var/lib/apt/lists")
_MASKED = (
    "systemd-tmpfiles-setup.service",
    "systemd-tmpfiles-setup-dev.service",
    "systemd-udevd.service",
    "systemd-udev-trigger.service",
    "systemd-logind.service",
    "systemd-binfmt.service",
    "proc-sys-fs-binfmt_misc.automount",
    "getty.target",
    "console-getty.service",
    "systemd-networkd.service",
    "systemd-resolved.service",
    "systemd-timesyncd.service",
)


def has_rootfs(cache: Cache) -> bool:
    return cache.has("rootfs", _key())


def _key() -> str:
    return content_key(versions.DEBIAN_SUITE, *PACKAGES)


def debian_rootfs(cache: Cache, shell: Shell, steps: Steps) -> Path:
    """A minimal Debian with PACKAGES and apt, as debootstrap leaves it (100 to 140 s on 2 cores, 440 MB).

    Needs root and debootstrap. Raises ClusterError where no package mirror answers.
    """

    def make(path: Path) -> None:
        with steps.step("install the nodes' root file system (Debian packages)") as report:
            options = ("--variant=minbase", f"--include={','.join(PACKAGES)}")
            # in a mount namespace of its own: however it ends, no /proc stays mounted below the cache
            command = ("unshare", "--mount", "debootstrap", *options, versions.DEBIAN_SUITE, path)
            shell.stream(*command, on_line=DebootstrapProgress(report).read)
            (path / "etc/resolv.conf").unlink(missing_ok=True)

    return cache.ensure("rootfs", _key(), make)


class DebootstrapProgress:
    """Counts packages in debootstrap's output: `I: Retrieving NAME VERSION`, then `I: Configuring NAME:ARCH...`.

    How many there are is known when the first one is configured; some of them are configured without a line.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._retrieved: set[str] = set()
        self._configured: set[str] = set()

    def read(self, line: str) -> None:
        match line.split():
            case ["I:", "Retrieving", ("InRelease" | "Packages" | "Release"), *_]:
                return
            case ["I:", "Retrieving", name, *_]:
                self._retrieved.add(name)
                self._report(Progress(len(self._retrieved), None, "packages retrieved", name))
            case ["I:", "Configuring", word]:
                name = word.removesuffix("...").partition(":")[0]
                self._configured |= {name} & self._retrieved
                self._report(Progress(len(self._configured), len(self._retrieved), "packages installed", name))


def strip_for_node(root: Path) -> None:
    """Removes documentation and all services that Debian would start; changes `root` in place."""
    for name in _UNUSED:
        shutil.rmtree(root / name, ignore_errors=True)
    for wants in (root / "etc/systemd/system").glob("*.wants"):
        shutil.rmtree(wants)
    for unit in _MASKED:
        link = root / "etc/systemd/system" / unit
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")
    for target in ("sysinit.target.wants", "multi-user.target.wants", "local-fs.target.wants"):
        for link in (root / "lib/systemd/system" / target).glob("*"):
            if "journal" not in link.name and "dbus" not in link.name:
                link.unlink()
