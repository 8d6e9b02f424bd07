"""The resources that a node's jobs share beside its devices, as JSON: a member of a pool's inventory, and what the owner of a
local node gives its manager.

[{"name": "storage"}, {"name": "link-0", "speed": 2, "devices": ["GPU-...", "GPU-..."]}]
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from emulator_runtime.domain.json_document import Field, parse
from emulator_runtime.domain.stages import LEAST_SPEED, MOST_SPEED, HostResource

_MAX_NAME = 64
_MAX_UUID = 128


def to_json(resources: Iterable[HostResource]) -> str:
    """The resources as a line of JSON."""
    return json.dumps(to_document(resources))


def to_document(resources: Iterable[HostResource]) -> list[dict[str, object]]:
    """The resources as a list for JSON."""
    return [{"name": each.name, "speed": each.speed, "devices": list(each.devices)} for each in resources]


def from_json(text: str, place: str) -> tuple[HostResource, ...]:
    """The resources in `text`; none if it is empty. Raises InputError naming `place` and the path of the mistake."""
    return from_document(parse(text, place)) if text else ()


def from_document(document: Field) -> tuple[HostResource, ...]:
    """The resources in a list. Raises InputError."""
    resources = tuple(_resource(entry) for entry in document.elements())
    names = [resource.name for resource in resources]
    if len(set(names)) < len(names):
        raise document.error("has two resources of the same name")
    return resources


def _resource(entry: Field) -> HostResource:
    members = entry.members(("name",), ("speed", "devices"))
    devices = members["devices"].elements() if "devices" in members else []
    return HostResource(
        members["name"].text(least=1, most=_MAX_NAME),
        _speed(members["speed"]) if "speed" in members else 1.0,
        tuple(device.text(least=1, most=_MAX_UUID) for device in devices),
    )


def _speed(document: Field) -> float:
    speed = document.number(least=LEAST_SPEED)
    if speed > MOST_SPEED:
        raise document.error(f"must be <= {MOST_SPEED:g}")
    return speed
