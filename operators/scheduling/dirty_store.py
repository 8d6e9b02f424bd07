"""Stores that remember which of their objects have changed since somebody looked, so that nobody has to look at all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from operators.kube.store import Heard, Store, full_name_of

T = TypeVar("T")


class DirtyStore(Store[T], Generic[T]):
    """`owner_of` says by facts under which name a change is noted in `dirty` (an EmuJob's name, for its pods)."""

    def __init__(
        self,
        facts_of: Callable[[Mapping[str, Any]], T],
        owner_of: Callable[[T], str],
        heard: Heard[T] = lambda _before, _after: None,
    ) -> None:
        super().__init__(facts_of, heard)
        self._owner_of = owner_of
        self.dirty: set[str] = set()

    def replace(self, documents: Iterable[Mapping[str, Any]], version: str = "") -> bool:
        before = self.values()
        changed = super().replace(documents, version)
        if changed:
            self.dirty.update(self._owner_of(facts) for facts in (*before, *self.values()))
        return changed

    def update(self, kind: str, document: Mapping[str, Any]) -> bool:
        before = self.get(full_name_of(document))
        changed = super().update(kind, document)
        if changed:
            self.dirty.update(
                self._owner_of(facts) for facts in (before, self.get(full_name_of(document))) if facts is not None
            )
        return changed

    def forget(self, name: str) -> None:
        facts = self.get(name)
        if facts is not None:
            self.dirty.add(self._owner_of(facts))
        super().forget(name)

    def take_dirty(self) -> set[str]:
        """What has changed since the last call."""
        found, self.dirty = self.dirty, set()
        return found
