"""The three kinds of action of a reconciliation, as data, so that decisions need no client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PatchNode:
    """Set these labels and annotations on the Node with this uid, and remove those of emugpu that aren't named."""

    name: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PatchStatus:
    """Replace the status of a pool."""

    name: str
    uid: str
    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RecordEvent:
    """An event about a pool; `kind` is Normal or Warning."""

    pool: str
    uid: str
    kind: str
    reason: str
    note: str


Action = PatchNode | PatchStatus | RecordEvent
