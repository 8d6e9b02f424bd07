"""Reads members of API objects that other programs write too: a missing member and one of the wrong type both read as empty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Key:
    """Identifies an object: by name, and by uid and resourceVersion where a write has preconditions."""

    namespace: str
    name: str
    uid: str = ""
    version: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def object_at(document: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """The object at this path; empty where there is none."""
    value: Any = document
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, dict) else {}


def objects_in(document: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The objects of the array `name`."""
    value = document.get(name)
    return [element for element in value if isinstance(element, dict)] if isinstance(value, list) else []


def texts_of(document: Mapping[str, Any], name: str) -> dict[str, str]:
    """A map of texts, such as labels."""
    return {key: str(value) for key, value in object_at(document, name).items()}


def text_at(document: Mapping[str, Any], name: str) -> str:
    """The text `name`; empty where it's missing."""
    value = document.get(name)
    return value if isinstance(value, str) else ""


def whole_at(document: Mapping[str, Any], name: str) -> int:
    """The whole number `name`; 0 where it's missing."""
    value = document.get(name)
    return value if type(value) is int else 0


def key_of(document: Mapping[str, Any]) -> Key:
    """Namespace, name, uid and version."""
    metadata = object_at(document, "metadata")
    return Key(*(text_at(metadata, name) for name in ("namespace", "name", "uid", "resourceVersion")))


def condition_of(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The condition of this type; empty where there is none."""
    return next((c for c in objects_in(status, "conditions") if c.get("type") == kind), {})


def condition_holds(status: Mapping[str, Any], kind: str) -> bool:
    """Whether the condition of this type is True."""
    return condition_of(status, kind).get("status") == "True"


def new_condition(
    before: Mapping[str, Any], kind: str, verdict: tuple[str, str, str], generation: int, now: str
) -> dict[str, Any]:
    """A condition after `before` (a whole status). `verdict`: status, reason, message; `now`: RFC 3339.

    lastTransitionTime changes with `status` only, and each says for which generation it holds (Kubernetes API conventions).
    """
    status, reason, message = verdict
    old = condition_of(before, kind)
    since = old.get("lastTransitionTime") if old.get("status") == status else None
    return {
        "type": kind,
        "status": status,
        "observedGeneration": generation,
        "lastTransitionTime": since or now,
        "reason": reason,
        "message": message[:1024],
    }
