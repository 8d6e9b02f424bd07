"""What a reconciliation may ask for: three kinds of action, as data, so that deciding and doing stay apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PatchNode:
    """Make these the labels and annotations of ours on the Node with this uid; those of ours that aren't named go."""

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
