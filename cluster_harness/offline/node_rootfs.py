"""The root file system of a node that is built on the spot: Debian packages, with what a machine would start taken out."""

from __future__ import annotations

import shutil
from pathlib import Path

from cluster_harness import versions
from cluster_harness.cache import Cache, content_key
from cluster_harness.shell import Shell
from cluster_harness.steps import Steps
from emulator_runtime.domain.errors import ClusterError

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


def debian_rootfs(cache: Cache, shell: Shell, steps: Steps) -> Path:
    """A minimal Debian with PACKAGES and apt, as debootstrap left it (100 s, 330 MB).

    Raises ClusterError where debootstrap is missing, we aren't root, or no package mirror answers.
    """

    def make(path: Path) -> None:
        if shutil.which("debootstrap", path=shell.environ.get("PATH")) is None:
            raise ClusterError(
                "debootstrap isn't installed; it makes the nodes' root file system (apt-get install debootstrap)"
            )
        with steps.step("install the nodes' root file system (Debian packages)"):
            options = ("--variant=minbase", f"--include={','.join(PACKAGES)}")
            # in a mount namespace of its own: however it ends, no /proc stays mounted below the cache
            shell.run("unshare", "--mount", "debootstrap", *options, versions.DEBIAN_SUITE, path)
            (path / "etc/resolv.conf").unlink(missing_ok=True)

    return cache.ensure("rootfs", content_key(versions.DEBIAN_SUITE, *PACKAGES), make)


def strip_for_node(root: Path) -> None:
    """Removes what is only read by people and everything that Debian would start; changes `root` in place."""
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
