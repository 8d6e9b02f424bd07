"""What a Store tells of changes, and an Index made of what it tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from operators.store import Index, Store


def document(name: str, value: str, version: int = 1) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}, "value": value}


def value_of(found: Mapping[str, Any]) -> str:
    return str(found["value"])


def test_each_change_is_told_once_with_what_was_before() -> None:
    told: list[tuple[str | None, str | None]] = []
    store: Store[str] = Store(value_of, lambda before, after: told.append((before, after)))
    assert store.replace([document("a", "1"), document("b", "1")])
    assert store.update("MODIFIED", document("a", "2", 2))
    assert not store.update("MODIFIED", document("a", "1", 1))  # older than what is known
    assert not store.update("MODIFIED", document("a", "2", 3))
    assert store.replace([document("a", "3", 4), document("c", "1", 5)])
    assert not store.replace([document("a", "3", 4), document("c", "1", 5)])
    assert store.update("DELETED", document("c", "1", 6))
    assert not store.update("DELETED", document("c", "1", 7))
    store.forget("a")
    assert told == [
        (None, "1"),
        (None, "1"),
        ("1", "2"),
        ("2", "3"),
        (None, "1"),
        ("1", None),
        ("1", None),
        ("3", None),
    ]


def test_an_empty_first_list_is_news() -> None:
    store: Store[str] = Store(value_of)
    assert store.replace([]) and store.synced and not store.replace([])


def test_an_index_follows() -> None:
    index: Index[str] = Index(lambda value: value[0] if value != "-" else "")
    store: Store[str] = Store(value_of, index.heard)
    store.replace([document("p", "x1"), document("q", "x2"), document("r", "-")])
    assert index.get("x") == ["x1", "x2"] and index.get("") == []
    store.update("MODIFIED", document("p", "y1", 2))
    store.update("DELETED", document("q", "x2", 3))
    assert (index.get("x"), index.get("y")) == ([], ["y1"])
