"""What a Store tells of changes, and an Index made of what it tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from operators.kube.store import Index, Store


def document(name: str, value: str, version: int = 1) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}, "value": value}


def value_of(found: Mapping[str, Any]) -> str:
    return str(found["value"])


def test_each_change_is_reported_once_with_what_was_before() -> None:
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


def test_a_list_does_not_take_back_what_is_known_from_after_it() -> None:
    told: list[tuple[str | None, str | None]] = []
    store: Store[str] = Store(value_of, lambda before, after: told.append((before, after)))
    store.replace([document("a", "1", 3), document("b", "1", 4), document("c", "1", 5)], "10")
    store.update("MODIFIED", document("a", "2", 12))  # the answer to a write, while the list is on its way
    store.update("ADDED", document("d", "1", 13))
    told.clear()
    assert store.replace([document("a", "1", 3), document("b", "2", 11)], "11")
    assert (store.get("a"), store.get("b"), store.get("c"), store.get("d")) == ("2", "2", None, "1")
    assert told == [("1", "2"), ("1", None)]
    assert store.replace([document("a", "3", 14)], "15")
    assert (store.get("a"), store.values()) == ("3", ["3"])


def test_an_echo_does_not_bring_back_what_is_deleted() -> None:
    store: Store[str] = Store(value_of)
    store.replace([document("a", "1", 10), document("b", "1", 9)], "11")
    assert store.update("DELETED", document("a", "1", 13))
    assert not store.update("MODIFIED", document("a", "2", 12))
    assert not store.update("DELETED", document("a", "1", 13))
    assert store.get("a") is None
    assert store.update("ADDED", document("a", "3", 14))  # another one of its name
    assert store.replace([], "16")
    assert not store.update("MODIFIED", document("b", "2", 15))  # deleted before the list
    assert store.update("ADDED", document("b", "3", 17))


def test_an_index_follows() -> None:
    index: Index[str] = Index(lambda value: value[0] if value != "-" else "")
    store: Store[str] = Store(value_of, index.update)
    store.replace([document("p", "x1"), document("q", "x2"), document("r", "-")])
    assert index.get("x") == ["x1", "x2"] and index.get("") == []
    store.update("MODIFIED", document("p", "y1", 2))
    store.update("DELETED", document("q", "x2", 3))
    assert (index.get("x"), index.get("y")) == ([], ["y1"])
