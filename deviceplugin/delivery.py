"""Delivers a grant to its container: by mounts in the reply to the kubelet, or by a CDI spec for the container runtime.

CDI: cncf-tags/container-device-interface, SPEC.md, version 0.6.0. The token is only in the reply, never in a spec.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from deviceplugin.resources.offer import ContainerReply, Mount
from emulator_runtime.files import write_whole

CDI_VERSION = "0.6.0"
CDI_KIND = "emugpu.dev/grant"

_SPEC_NAME = re.compile(r"emugpu\.dev-grant-([0-9a-f]{32})\.json")


class Delivery(Protocol):
    """A way to deliver a grant."""

    def deliver(self, grant_id: str, envs: Mapping[str, str], mounts: tuple[Mount, ...]) -> ContainerReply:
        """The reply for the container; files that it refers to are on disk. Raises OSError and leaves no files then."""
        ...

    def sweep(self, alive: Callable[[str], bool]) -> None:
        """Remove the files of grants that don't exist any more."""
        ...


class MountDelivery:
    """Puts everything into the reply, so there are no files to remove."""

    def deliver(self, grant_id: str, envs: Mapping[str, str], mounts: tuple[Mount, ...]) -> ContainerReply:
        return ContainerReply(envs, mounts)

    def sweep(self, alive: Callable[[str], bool]) -> None:
        return


class CdiDelivery:
    """Writes a spec file for each grant to `cdi_dir`, which the container runtime watches."""

    def __init__(self, cdi_dir: Path) -> None:
        self._dir = cdi_dir

    def deliver(self, grant_id: str, envs: Mapping[str, str], mounts: tuple[Mount, ...]) -> ContainerReply:
        spec = {
            "cdiVersion": CDI_VERSION,
            "kind": CDI_KIND,
            "devices": [{"name": grant_id, "containerEdits": {"mounts": [_cdi_mount(mount) for mount in mounts]}}],
        }
        path = self._dir / f"emugpu.dev-grant-{grant_id}.json"
        unfinished = path.with_suffix(".new")  # runtimes only read *.json and *.yaml
        write_whole(path, json.dumps(spec), sync=True, mode=0o644, unfinished=unfinished)
        return ContainerReply(envs, cdi_devices=(f"{CDI_KIND}={grant_id}",))

    def sweep(self, alive: Callable[[str], bool]) -> None:
        """Also removes unfinished `.new` files of a killed process, since they have no grant."""
        for path in list(self._dir.iterdir()):
            match = _SPEC_NAME.fullmatch(path.with_suffix(".json").name)
            if match and not alive(match[1]):
                path.unlink(missing_ok=True)


def _cdi_mount(mount: Mount) -> dict[str, object]:
    return {
        "hostPath": mount.host_path,
        "containerPath": mount.container_path,
        "options": ["ro", "nosuid", "nodev", "bind"],
    }
