"""What the controllers of EmuJobs and of SchedulingExperiments both decide, as data: so that planning needs no client.

What only one of them asks for stands in its own plan.py. Writes are counted by the names of these classes (metrics).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from operators.kube.documents import Key
from operators.kube.events import News

A = TypeVar("A", covariant=True)


@dataclass(frozen=True, slots=True)
class SuspendJob:
    """Set spec.suspend of this very version of a Job."""

    key: Key
    suspend: bool


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the Job with this uid; it stays until its pods are gone."""

    key: Key


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Replace the status of this very version of the object that is reported on."""

    key: Key
    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tell:
    """An event about the object that is reported on."""

    key: Key
    news: News


CommonAction = SuspendJob | DeleteJob | WriteStatus | Tell


@dataclass(frozen=True, slots=True)
class Plan(Generic[A]):
    """`actions` in order, each only after the one before came through; `again_s`: look again after so many seconds."""

    actions: tuple[A, ...] = ()
    again_s: float | None = field(default=None, compare=False)


def report(
    key: Key,
    before: Mapping[str, Any],
    status: Mapping[str, Any],
    news_of: Callable[[Mapping[str, Any], Mapping[str, Any]], Iterable[News]],
) -> Iterator[WriteStatus | Tell]:
    """The status where it is another one than `before`, and then what there is to tell of the difference."""
    if status == before:
        return
    yield WriteStatus(key, status)
    for news in news_of(before, status):
        yield Tell(key, news)
