"""What the device plugin gives a job container: the token of its grant, the manager's socket and the device files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
"""Kubernetes sets the second in the pods of an Indexed Job."""
RENDEZVOUS_VARIABLE = "EMUGPU_RENDEZVOUS"


@dataclass(frozen=True, slots=True)
class PodAccess:
    """How a container reaches its node's manager: for its devices, or for its host slot if it has no GPU."""

    token: str
    manager: Path


def pod_access(environ: Mapping[str, str]) -> PodAccess:
    """The access from the environment. Raises InputError in a container with neither an emulated GPU nor a host slot. A
    container with both uses the GPU."""
    token = environ.get(TOKEN_VARIABLE) or environ.get(HOST_TOKEN_VARIABLE)
    socket = environ.get(MANAGER_SOCKET_VARIABLE)
    if token and socket:
        return PodAccess(token, Path(socket))
    fix = f"ask for emuGPU in resources.limits ({HOST_RESOURCE}: 1 to train without one)"
    raise InputError(
        MANAGER_SOCKET_VARIABLE if token else TOKEN_VARIABLE, f"is missing: this container has no emulated GPU; {fix}"
    )


def whole_variable(environ: Mapping[str, str], names: tuple[str, ...], default: int) -> int:
    """The first of these variables that is set, as a whole number. Raises InputError naming the variable."""
    for name in names:
        value = environ.get(name, "")
        if value:
            if not (value.isascii() and value.isdigit()):
                raise InputError(name, f"must be a whole number, not {value!r}")
            return int(value)
    return default


def container_gpu_types(edev: Path = Path(CONTAINER_EDEV_DIR)) -> tuple[str, ...]:
    """The GPU type of each device of the container, by the device files."""
    return tuple(str(entry["gpu_type"]) for entry in _entries(edev) if "gpu_type" in entry)


def all_linked(uuids: list[str], edev: Path = Path(CONTAINER_EDEV_DIR)) -> bool:
    """Whether every two of these devices have a fast link, according to the device files.

    True if there are no device files; then only the GPU type is known.
    """
    links = _links(edev)
    return all(links[one].get(other) == "NVLink" for one in uuids if one in links for other in uuids if other != one)


def _links(edev: Path) -> dict[str, Mapping[str, str]]:
    """The links of each device by UUID."""
    return {str(entry.get("uuid")): entry["links"] for entry in _entries(edev) if isinstance(entry.get("links"), dict)}


def _entries(edev: Path) -> Iterator[Mapping[str, Any]]:
    """The device files that can be read, which are only a hint."""
    for path in sorted(edev.glob("*")):
        try:
            entry = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(entry, dict):
            yield entry
