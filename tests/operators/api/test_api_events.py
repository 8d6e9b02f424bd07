"""Changes as a stream: what is told to whom, and how one goes on after the connection was lost."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.api.model.changes import Changes
from operators.api.services import Streams


def events(place: Any, token: str = "root-token", last: str = "", **parameters: str) -> list[dict[str, str]]:
    """What one stream tells until there is no more."""
    headers = {"Authorization": f"Bearer {token}"} | ({"Last-Event-ID": last} if last else {})
    reply = place.client.get("/api/v1/events", headers=headers, params=parameters)
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert "content-encoding" not in reply.headers
    blocks = [block.splitlines() for block in reply.text.split("\n\n")]
    found = [dict(line.split(": ", 1) for line in block if not line.startswith(":")) for block in blocks]
    return [event for event in found if event]


def test_a_stream_begins_with_where_it_is(place: Any) -> None:
    (first,) = events(place)
    assert first == {"retry": "2000", "id": "ab-0"}


def test_what_changed_since_an_event_is_told(place: Any) -> None:
    for phase in ("Starting", "Running"):
        place.source.change("u2", phase=phase)
    place.source.changes.tell("device", "w1/0")
    _, changed, device = events(place, last="ab-0")
    assert (changed["event"], changed["id"]) == ("job", "ab-2")
    assert json.loads(changed["data"])["phase"] == "Running"  # as it is now, once
    assert (device["event"], device["id"], json.loads(device["data"])) == ("device", "ab-3", {"id": "w1/0"})
    assert [event["id"] for event in events(place, last="ab-2")] == ["ab-2", "ab-3"]


def test_a_page_that_loads_while_something_changes_misses_nothing(place: Any) -> None:
    (state,) = place.get("/clusters")["items"]
    place.source.change("u1", phase="Preempted")
    assert [event.get("event") for event in events(place, after=state["event"])] == [None, "job"]
    assert len(events(place, after=state["event"], last="ab-1")) == 1  # once connected, the header counts


def test_a_job_that_is_gone_is_told(place: Any) -> None:
    place.source.changes.tell("job", "u9", "lab")
    assert json.loads(events(place, last="ab-0")[1]["data"]) == {"uid": "u9", "gone": True}


@pytest.mark.parametrize("last", ["cd-0", "ab-99", "nonsense", "ab-", "-1", "ab-1-1"])
def test_what_can_t_be_told_any_more_is_a_reset(place: Any, last: str) -> None:
    place.source.change("u1", phase="Preempted")
    first = events(place, last=last)[0]
    assert (first["event"], first["id"]) == ("reset", "ab-1")


def test_jobs_of_other_namespaces_are_not_told(place: Any) -> None:
    place.source.change("u1", phase="Preempted")
    place.source.change("u2", phase="Running")
    told = events(place, "ann-token", last="ab-0", namespace="lab")
    assert [json.loads(event["data"])["uid"] for event in told[1:]] == ["u1"]


def test_a_stream_says_that_it_is_there(place: Any) -> None:
    reply = place.client.get("/api/v1/events", headers={"Authorization": "Bearer root-token"})
    assert ": still here\n\n" in reply.text


def test_a_stream_ends_by_itself_so_that_its_caller_is_asked_anew(place: Any) -> None:
    services = place.app.state.services
    place.app.state.services = replace(services, streams=Streams(lasts_s=0.05, heartbeat_s=3600))
    reply = place.client.get("/api/v1/events", headers={"Authorization": "Bearer root-token"})
    assert ": still here" not in reply.text  # nobody hung up
    assert reply.text.endswith("id: ab-0\n\n")
    assert not place.app.state.streams


def test_there_are_so_many_streams_and_no_more(place: Any) -> None:
    place.app.state.streams.update({"a", "b"})
    try:
        assert place.status("/events") == (503, "busy")
    finally:
        place.app.state.streams.clear()
    assert events(place)
    assert not place.app.state.streams  # one whose caller hung up is not counted


def test_changes_that_were_dropped_are_known_to_be() -> None:
    changes = Changes("e", most=3)
    for number in range(5):
        changes.tell("job", f"u{number}")
    assert [change.subject for change in changes.after(2) or ()] == ["u2", "u3", "u4"]
    assert changes.after(1) is None
    assert changes.number_of("e-2") == 2
    assert changes.number_of("e-1") is None
    assert changes.number_of("e-6") is None


@given(st.lists(st.integers(0, 6)), st.integers(1, 8))
def test_a_reader_at_its_own_pace_misses_nothing_or_is_told(pace: list[int], most: int) -> None:
    """Between two looks any number of changes; what isn't told one by one is told as a loss."""
    changes, told, read, lost = Changes("e", most), [], 0, 0
    for several in pace:
        for _ in range(several):
            changes.tell("job", str(changes.last + 1))
        found = changes.after(read)
        if found is None:
            lost += changes.last - read
            assert several > most
        else:
            told += [change.number for change in found]
        read = changes.last
    assert len(told) + lost == changes.last
    assert told == sorted(set(told))


def test_readers_wait_for_news() -> None:
    async def story() -> None:
        changes = Changes("e")
        waiting = [asyncio.create_task(changes.wait(0)) for _ in range(3)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        changes.tell("reset")
        await asyncio.wait_for(asyncio.gather(*waiting), 20)
        await changes.wait(0)  # there is news already

    asyncio.run(story())
