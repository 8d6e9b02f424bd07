from __future__ import annotations

import pytest

from sharing_manager.grants.identity import PodIdentity
from sharing_manager.kubernetes import events
from sharing_manager.kubernetes.events import (
    BURST,
    MAX_QUEUED,
    EventGate,
    EventSender,
    PendingEvent,
    Subject,
    event_object,
)

S = 1_000_000_000
POD = PodIdentity("uid-1", "c" * 64, "team-a", "train", "main", "job/0")
SUBJECT = Subject.of_pod(POD)


@pytest.fixture
def sender(api, monkeypatch):
    """`sender.drain()` runs the thread's work until nothing is due; `sender.clock[0]` is the host's time."""
    clock = [1000 * S]
    monkeypatch.setattr(events, "monotonic_ns", lambda: clock[0])
    sender = EventSender(api, "n1", lambda: None, lambda: 1_700_000_000_123_456_789 + clock[0])
    sender.clock = clock

    def drain():
        while (due := sender.step(clock[0])) is not None and due <= clock[0]:
            pass
        return due

    sender.drain = drain
    return sender


def test_an_event_as_the_api_wants_it(fake, sender) -> None:
    sender.record(POD, "DeviceLost", "device 3 is gone", warning=True)
    assert sender.drain() is None
    assert fake.requests[-1][0] == "/apis/events.k8s.io/v1/namespaces/team-a/events"
    (event,) = fake.events
    metadata = event.pop("metadata")
    assert metadata["namespace"] == "team-a" and metadata["name"].startswith("train.")
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "eventTime": "2023-11-14T22:30:00.123456Z",
        "reportingController": "emugpu.dev/sharing-manager",
        "reportingInstance": "n1",
        "action": "DeviceLost",
        "reason": "DeviceLost",
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "train",
            "uid": "uid-1",
            "namespace": "team-a",
            "fieldPath": "spec.containers{main}",
        },
        "note": "device 3 is gone",
        "type": "Warning",
    }


def test_an_event_about_a_node_lives_in_default_and_lengths_are_kept() -> None:
    event = PendingEvent(Subject("Node", "n" * 253, "u"), "R", "ü" * 2000, warning=False, wall_ns=1)
    event = event_object(event, "n" * 253)
    assert event["metadata"]["namespace"] == "default" and "namespace" not in event["regarding"]
    assert len(event["metadata"]["name"]) <= 253 and len(event["reportingInstance"]) == 128
    assert 1000 < len(event["note"].encode()) <= 1024 and event["type"] == "Normal"


def test_the_same_event_is_reported_once_in_five_minutes(fake, sender) -> None:
    for _ in range(3):
        sender.record(POD, "OutOfMemory", "no room", warning=True)
    sender.record(POD, "OutOfMemory", "still no room", warning=True)
    sender.drain()
    assert [event["note"] for event in fake.events] == ["no room", "still no room"]
    sender.clock[0] += 299 * S
    sender.record(POD, "OutOfMemory", "no room", warning=True)
    sender.drain()
    assert len(fake.events) == 2
    sender.clock[0] += S
    sender.record(POD, "OutOfMemory", "no room", warning=True)
    sender.drain()
    assert fake.events[2]["note"] == "no room (3 more of these in the last minutes)"


def test_what_was_reported_is_forgotten_in_the_end(monkeypatch) -> None:
    monkeypatch.setattr(events, "_MAX_KEYS", 10)
    gate = EventGate()
    assert all(gate.admit(SUBJECT, "R", str(number), 0) == 0 for number in range(11))
    assert gate.admit(SUBJECT, "R", "10", 0) is None
    assert gate.admit(SUBJECT, "R", "0", 0) == 0


def test_after_a_burst_one_a_second_goes(fake, sender) -> None:
    for number in range(BURST + 3):
        sender.record(POD, "R", str(number), warning=False)
    due = sender.drain()
    assert len(fake.events) == BURST and due == sender.clock[0] + S and sender.queued == 3
    sender.clock[0] += 2 * S
    sender.drain()
    assert len(fake.events) == BURST + 2
    sender.clock[0] += S
    assert sender.drain() is None
    sender.clock[0] += 100 * S
    for number in range(100, 102 + BURST):
        sender.record(POD, "R", str(number), warning=False)
    sender.drain()
    assert len(fake.events) == 2 * BURST + 3  # rest has filled the bucket again, but not above its brim


def test_a_flood_drops_the_oldest_and_counts_them(fake, sender) -> None:
    for number in range(MAX_QUEUED + 5):
        sender.record(POD, "R", str(number), warning=False)
    assert (sender.queued, sender.dropped) == (MAX_QUEUED, 5)
    sender.drain()
    assert fake.events[0]["note"] == "5"


@pytest.mark.parametrize("fault", [401, 429, 500, "drop", "hang"])
def test_what_may_pass_is_tried_again(fake, sender, fault) -> None:
    fake.fail(fault, times=2)
    sender.record(POD, "R", "note", warning=False)
    for _ in range(2):
        due = sender.drain()
        assert not fake.events and due > sender.clock[0]
        sender.clock[0] = due
    assert sender.drain() is None and [event["note"] for event in fake.events] == ["note"]


@pytest.mark.parametrize("status", [403, 404, 409, 422])
def test_what_cannot_pass_is_dropped_and_does_not_hold_up_the_next(fake, sender, status, caplog) -> None:
    fake.fail(status, times=1)
    sender.record(POD, "R", "first", warning=False)
    sender.record(POD, "R", "second", warning=False)
    sender.drain()
    assert [event["note"] for event in fake.events] == ["second"] and sender.dropped == 1
    assert "an event about train is dropped: API server: POST" in caplog.text and str(status) in caplog.text


def test_an_event_that_could_not_be_told_for_a_minute_is_dropped(fake, sender) -> None:
    fake.fail(500)
    sender.record(POD, "R", "note", warning=False)
    began = sender.clock[0]
    while (due := sender.drain()) is not None:
        sender.clock[0] = due
    assert sender.dropped == 1 and 60 * S <= sender.clock[0] - began <= 75 * S


def test_names_differ_even_where_the_wall_clock_stands_still(fake, sender) -> None:
    sender.record(POD, "R", "first", warning=False)
    sender.record(POD, "R", "second", warning=False)
    sender.drain()
    assert len({event["metadata"]["name"] for event in fake.events}) == 2
