"""A policy's books that go from one plan to the next, changed in place, without an effect on the purity of the policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Handed(Generic[T]):
    """Content that its taker may change, and that can be taken once.

    A state must not change, since the same view gives the same plan; but copying all waiting jobs at each event makes a long
    workload quadratic. So a policy takes its books from the state of the plan in force, brings them up to date with
    `view.changes`, and hands them on in the state of the next plan. If it is called with the same state again, it gets None and
    makes the books anew from the view.
    """

    KEPT: ClassVar[bool] = False
    """Not persisted over a restart of the scheduler: it can be computed from the next view."""

    content: list[T] = field(repr=False)

    def take(self) -> T | None:
        """The content; None if somebody has taken it."""
        try:
            return self.content.pop()
        except IndexError:
            return None


def taken(handed: Handed[T] | None) -> T | None:
    """The content of the last plan's books; None if there are none, or not any more."""
    return None if handed is None else handed.take()
