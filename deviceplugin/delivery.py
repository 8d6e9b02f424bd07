"""How a grant reaches its container: as mounts in the kubelet's reply, or as a CDI spec that the container runtime reads.

CDI: cncf-tags/container-device-interface, SPEC.md, version 0.6.0. The token is never in a spec, only in the reply.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from deviceplugin.container import ContainerReply, Mount
from emulator_runtime.files import write_whole

CDI_VERSION = "0.6.0"
CDI_KIND = "emugpu.dev/grant"

_SPEC_NAME = re.compile(r"emugpu\.dev-grant-([0-9a-f]{32})\.json")


class Delivery(Protocol):
    """One way to hand over a grant."""

    def deliver(self, grant_id: str, envs: Mapping[str, str], mounts: tuple[Mount, ...]) -> ContainerReply:
        """The reply for the container; what it refers to is on disk. Raises OSError; then nothing is left."""
        ...

    def sweep(self, alive: Callable[[str], bool]) -> None:
        """Remove what belongs to grants that are gone."""
        ...


class MountDelivery:
    """Everything is in the reply, so there is nothing to remove."""

    def deliver(self, grant_id: str, envs: Mapping[str, str], mounts: tuple[Mount, ...]) -> ContainerReply:
        return ContainerReply(envs, mounts)

    def sweep(self, alive: Callable[[str], bool]) -> None:
        return


class CdiDelivery:
    """A spec file per grant in `cdi_dir`, which the container runtime watches."""

    def __init__(self, cdi_dir: Path) -> None:
        self._dir = cdi_dir

    def deliver(self, grant_id: str, envs: Mapping[str, str], mounts: tuple[Mount, ...]) -> ContainerReply:
        spec = {
            "cdiVersion": CDI_VERSION,
            "kind": CDI_KIND,
            "devices": [{"name": grant_id, "containerEdits": {"mounts": [_cdi_mount(mount) for mount in mounts]}}],
        }
        path = self._dir / f"emugpu.dev-grant-{grant_id}.json"
        unfinished = path.with_suffix(".new")  # runtimes read *.json and *.yaml only
        write_whole(path, json.dumps(spec), sync=True, mode=0o644, unfinished=unfinished)
        return ContainerReply(envs, cdi_devices=(f"{CDI_KIND}={grant_id}",))

    def sweep(self, alive: Callable[[str], bool]) -> None:
        """Also what a killed process left unfinished: without its grant, a name with `.new` is nobody's."""
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
