"""What the controller knows of pools: the border where the API's JSON becomes types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from operators.kube.documents import object_at


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """One EmuGPUPool. `created` is an RFC 3339 time, which sorts as text; `status` is what the API server has."""

    name: str
    uid: str
    created: str
    generation: int = 1
    deleting: bool = False
    spec: Mapping[str, Any] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)


def pool_facts(document: Mapping[str, Any]) -> PoolFacts:
    """An EmuGPUPool as the API server sends it."""
    metadata = object_at(document, "metadata")
    return PoolFacts(
        name=str(metadata.get("name", "")),
        uid=str(metadata.get("uid", "")),
        created=str(metadata.get("creationTimestamp", "")),
        generation=int(metadata.get("generation", 0)),
        deleting=metadata.get("deletionTimestamp") is not None,
        spec=object_at(document, "spec"),
        status=object_at(document, "status"),
    )
