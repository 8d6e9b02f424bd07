"""The last known state of one kind of object, from a list and the changes after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Store(Generic[T]):
    """Facts by name, or `namespace/name`. Full objects are not kept: of a Node's 20 kB this package needs one."""

    def __init__(self, facts_of: Callable[[Mapping[str, Any]], T]) -> None:
        self._facts_of = facts_of
        self._items: dict[str, tuple[int, T]] = {}
        self.synced = False

    def get(self, key: str) -> T | None:
        return self._items[key][1] if key in self._items else None

    def values(self) -> list[T]:
        return [facts for _, facts in self._items.values()]

    def replace(self, documents: Iterable[Mapping[str, Any]]) -> bool:
        """Take a whole list; whether it says anything new."""
        before, was_synced = {name: facts for name, (_, facts) in self._items.items()}, self.synced
        self._items = {key_of(d): (_version(d), self._facts_of(d)) for d in documents}
        self.synced = True
        return not was_synced or before != {name: facts for name, (_, facts) in self._items.items()}

    def update(self, kind: str, document: Mapping[str, Any]) -> bool:
        """Take one change, unless a newer state is known already; whether it says anything new.

        Resource versions of one resource grow (Kubernetes API concepts), so an echo of an older state is told from news.
        """
        name, version = key_of(document), _version(document)
        known = self._items.get(name)
        if known is not None and version < known[0]:
            return False
        if kind == "DELETED":
            return self._items.pop(name, None) is not None
        facts = self._facts_of(document)
        self._items[name] = version, facts
        return known is None or known[1] != facts

    def forget(self, name: str) -> None:
        self._items.pop(name, None)


def key_of(document: Mapping[str, Any]) -> str:
    """The name, after its namespace and a slash where it has one."""
    metadata = document["metadata"]
    namespace = metadata.get("namespace", "")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def _version(document: Mapping[str, Any]) -> int:
    text = str(document["metadata"].get("resourceVersion", ""))
    return int(text) if text.isascii() and text.isdigit() else 0
