"""The cache of one kind of object: its last known state, from a list and the watch events after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

T = TypeVar("T")
OnChange = Callable[[T | None, T | None], None]


class Store(Generic[T]):
    """Facts by name, or `namespace/name`. Full objects are not cached: of a Node's 20 kB this package needs one.

    `on_change` is called for each object that was added, changed or deleted, with the facts before and after; None stands for
    "does not exist".
    """

    def __init__(
        self, facts_of: Callable[[Mapping[str, Any]], T], on_change: OnChange[T] = lambda _before, _after: None
    ) -> None:
        self._facts_of, self._on_change = facts_of, on_change
        self._items: dict[str, tuple[int, T]] = {}
        self._listed = 0
        self._gone: dict[str, int] = {}
        """Versions of deletions since the last list."""
        self.synced = False

    def get(self, key: str) -> T | None:
        return self._items[key][1] if key in self._items else None

    def values(self) -> list[T]:
        return [facts for _, facts in self._items.values()]

    def replace(self, documents: Iterable[Mapping[str, Any]], version: str = "") -> bool:
        """Take a whole list; returns whether anything changed. Objects that are newer than the list stay as they are."""
        before, was_synced = self._items, self.synced
        self._listed, self._gone, self.synced = _number(version), {}, True
        newer = {name: item for name, item in before.items() if item[0] > self._listed > 0}
        self._items = {full_name_of(d): (_version(d), self._facts_of(d)) for d in documents} | newer
        names = [*self._items, *(name for name in before if name not in self._items)]
        return sum([self._notify(before.get(name), self._items.get(name)) for name in names]) > 0 or not was_synced

    def update(self, kind: str, document: Mapping[str, Any]) -> bool:
        """Take one watch event or the answer to a write, unless the cache has a newer state; returns whether anything changed.

        Resource versions of one resource grow (Kubernetes documentation, "Kubernetes API Concepts"), so late events are
        recognised by their version, also after the object was deleted.
        """
        name, version = full_name_of(document), _version(document)
        known = self._items.get(name)
        if known is not None and version < known[0]:
            return False
        if known is None and 0 < version <= max(self._listed, self._gone.get(name, 0)):
            return False
        if kind == "DELETED":
            self._gone[name] = version
            self._items.pop(name, None)
        else:
            self._items[name] = version, self._facts_of(document)
        return self._notify(known, self._items.get(name))

    def forget(self, name: str) -> None:
        self._notify(self._items.pop(name, None), None)

    def _notify(self, before: tuple[int, T] | None, after: tuple[int, T] | None) -> bool:
        was, now = before[1] if before is not None else None, after[1] if after is not None else None
        if was != now:
            self._on_change(was, now)
        return was != now


class Index(Generic[T]):
    """Facts by another name, such as pods by the name of their job; a Store calls `update`. `name_of` empty: not indexed."""

    def __init__(self, name_of: Callable[[T], str]) -> None:
        self._name_of = name_of
        self._groups: dict[str, list[T]] = {}

    def get(self, name: str) -> list[T]:
        return list(self._groups.get(name, ()))

    def update(self, before: T | None, after: T | None) -> None:
        if before is not None and (name := self._name_of(before)):
            self._groups[name].remove(before)
            if not self._groups[name]:
                del self._groups[name]
        if after is not None and (name := self._name_of(after)):
            self._groups.setdefault(name, []).append(after)


def full_name_of(document: Mapping[str, Any]) -> str:
    """The name, after its namespace and a slash where it has one."""
    metadata = document["metadata"]
    namespace = metadata.get("namespace", "")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def _version(document: Mapping[str, Any]) -> int:
    return _number(str(document["metadata"].get("resourceVersion", "")))


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0
