"""What a job container was given: the token of its grant, the manager's socket and its device files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from emulator_runtime.domain.errors import InputError
from emulator_runtime.node.layout import (
    CONTAINER_EDEV_DIR,
    HOST_RESOURCE,
    HOST_TOKEN_VARIABLE,
    MANAGER_SOCKET_VARIABLE,
    TOKEN_VARIABLE,
)

NODES_VARIABLE = "EMUGPU_NODES"
RANK_VARIABLES = ("EMUGPU_RANK", "JOB_COMPLETION_INDEX")
"""The second is set by Kubernetes in the pods of an Indexed Job."""
RENDEZVOUS_VARIABLE = "EMUGPU_RENDEZVOUS"


@dataclass(frozen=True, slots=True)
class PodAccess:
    """How this container reaches its devices, or its node where it trains on CPUs alone."""

    token: str
    manager: Path


def pod_access(environ: Mapping[str, str]) -> PodAccess:
    """Raises InputError in a container that has neither an emulated GPU nor a place on its node. Where it has both, the GPU
    counts."""
    token = environ.get(TOKEN_VARIABLE) or environ.get(HOST_TOKEN_VARIABLE)
    socket = environ.get(MANAGER_SOCKET_VARIABLE)
    if token and socket:
        return PodAccess(token, Path(socket))
    fix = f"ask for emuGPU in resources.limits ({HOST_RESOURCE}: 1 to train without one)"
    raise InputError(
        MANAGER_SOCKET_VARIABLE if token else TOKEN_VARIABLE, f"is missing: this container has no emulated GPU; {fix}"
    )


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
