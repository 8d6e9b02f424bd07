"""What a job container was given: the token of its grant, the manager's socket and its device files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from emulator_runtime.domain.errors import InputError
from emulator_runtime.node.layout import CONTAINER_EDEV_DIR, MANAGER_SOCKET_VARIABLE, TOKEN_VARIABLE

NODES_VARIABLE = "EMUGPU_NODES"
RANK_VARIABLES = ("EMUGPU_RANK", "JOB_COMPLETION_INDEX")
"""The second is set by Kubernetes in the pods of an Indexed Job."""
RENDEZVOUS_VARIABLE = "EMUGPU_RENDEZVOUS"


@dataclass(frozen=True, slots=True)
class PodAccess:
    """How this container reaches its devices."""

    token: str
    manager: Path


def pod_access(environ: Mapping[str, str]) -> PodAccess:
    """Raises InputError in a container that has no emulated GPU."""
    for name in (TOKEN_VARIABLE, MANAGER_SOCKET_VARIABLE):
        if not environ.get(name):
            raise InputError(name, "is missing: this container has no emulated GPU; ask for emuGPU in resources.limits")
    return PodAccess(environ[TOKEN_VARIABLE], Path(environ[MANAGER_SOCKET_VARIABLE]))


def whole_variable(environ: Mapping[str, str], names: tuple[str, ...], default: int) -> int:
    """The first of these variables that is set, as a whole number. Raises InputError that names it."""
    for name in names:
        value = environ.get(name, "")
        if value:
            if not (value.isascii() and value.isdigit()):
                raise InputError(name, f"must be a whole number, not {value!r}")
            return int(value)
    return default


def all_linked(uuids: list[str], edev: Path = Path(CONTAINER_EDEV_DIR)) -> bool:
    """Whether each of these devices has a fast link to each of the others, as their device files tell.

    True where there are no such files: then only the GPU type is known.
    """
    links = _links(edev)
    return all(links[one].get(other) == "NVLink" for one in uuids if one in links for other in uuids if other != one)


def _links(edev: Path) -> dict[str, Mapping[str, str]]:
    """The links of each device by its UUID; files that can't be read are left out, they are a hint only."""
    links: dict[str, Mapping[str, str]] = {}
    for path in sorted(edev.glob("*")):
        try:
            entry = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(entry, dict) and isinstance(entry.get("links"), dict):
            links[str(entry.get("uuid"))] = entry["links"]
    return links
