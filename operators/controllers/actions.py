"""Actions that the controllers share, as data: planning needs no client. Actions of only one controller are in its own folder.

The metrics of writes and failures are labelled with `label_of` an action.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from operators.controllers.events import Event
from operators.kube.documents import Key

A = TypeVar("A", covariant=True)

NOT_CARRIED_OUT = "NotCarriedOut"
"""Reason of the event (and of an EmuJob's condition Scheduled) when the API server refuses a planned write."""


@dataclass(frozen=True, slots=True)
class SuspendJob:
    """Set spec.suspend of a Job, if it still has the version of the key."""

    key: Key
    suspend: bool
    label: str = ""


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the Job with this uid, in the foreground: it stays until its pods are deleted."""

    key: Key
    label: str = ""


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Replace the members of the status that the controller owns, if its object still has the version of the key."""

    key: Key
    status: Mapping[str, Any]
    label: str = ""


@dataclass(frozen=True, slots=True)
class RecordEvent:
    """Create an event about the controller's object."""

    key: Key
    event: Event


CommonAction = SuspendJob | DeleteJob | WriteStatus | RecordEvent


@dataclass(frozen=True, slots=True)
class Plan(Generic[A]):
    """`actions` in order, each only after the one before succeeded; `again_s`: seconds until the next reconciliation.

    `owner`: the object whose events report that the plan keeps failing; None: the controller isn't ready while it fails.
    """

    actions: tuple[A, ...] = ()
    again_s: float | None = field(default=None, compare=False)
    owner: Key | None = field(default=None, compare=False)


def label_of(action: object) -> str:
    """The action's label in metrics: its own if it has one, else the name of its class."""
    return getattr(action, "label", "") or type(action).__name__


def report(
    key: Key,
    before: Mapping[str, Any],
    status: Mapping[str, Any],
    events_of: Callable[[Mapping[str, Any], Mapping[str, Any]], Iterable[Event]],
) -> Iterator[WriteStatus | RecordEvent]:
    """Write the status if it differs from `before`, then the events about the difference."""
    if status == before:
        return
    yield WriteStatus(key, status)
    for event in events_of(before, status):
        yield RecordEvent(key, event)
