"""The events about objects: their texts, names and namespaces."""

from __future__ import annotations

from operators.controllers.events import Event, Regarding, event_document
from operators.kube.informer import Pauses

WALL_NS = 1_767_225_600_000_000_000  # 2026-01-01T00:00:00Z


def test_an_event_is_one_of_its_kind() -> None:
    event, pool = Event("Warning", "NoNodes", "n" * 2000), Regarding("EmuGPUPool", "p", "uid")
    document = event_document(pool, event, "pools", WALL_NS + 1500)
    assert document["eventTime"] == "2026-01-01T00:00:00.000001Z"
    assert len(document["note"]) == 1024
    assert document["metadata"]["name"] != event_document(pool, event, "pools", WALL_NS)["metadata"]["name"]
    assert document["metadata"]["namespace"] == "default"
    assert "namespace" not in document["regarding"]


def test_pauses_grow_and_are_bounded() -> None:
    pauses = Pauses()
    assert [pauses.after(n) for n in (1, 2, 3, 20, 10_000)] == [0.5, 1.0, 2.0, 60.0, 60.0]
