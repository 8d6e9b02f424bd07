"""Actions that the controllers of EmuJobs and of SchedulingExperiments share, as data: planning needs no client.

Actions of only one controller are in its plan.py. The metric of writes is labelled by the names of these classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from operators.controllers.events import News
from operators.kube.documents import Key

A = TypeVar("A", covariant=True)


@dataclass(frozen=True, slots=True)
class SuspendJob:
    """Set spec.suspend of a Job, if it still has the version of the key."""

    key: Key
    suspend: bool


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the Job with this uid, in the foreground: it stays until its pods are deleted."""

    key: Key


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Replace the status of the controller's object, if it still has the version of the key."""

    key: Key
    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tell:
    """Create an event about the controller's object."""

    key: Key
    news: News


CommonAction = SuspendJob | DeleteJob | WriteStatus | Tell


@dataclass(frozen=True, slots=True)
class Plan(Generic[A]):
    """`actions` in order, each only after the one before succeeded; `again_s`: seconds until the next reconciliation."""

    actions: tuple[A, ...] = ()
    again_s: float | None = field(default=None, compare=False)


def report(
    key: Key,
    before: Mapping[str, Any],
    status: Mapping[str, Any],
    news_of: Callable[[Mapping[str, Any], Mapping[str, Any]], Iterable[News]],
) -> Iterator[WriteStatus | Tell]:
    """Write the status if it differs from `before`, then the events about the difference."""
    if status == before:
        return
    yield WriteStatus(key, status)
    for news in news_of(before, status):
        yield Tell(key, news)
