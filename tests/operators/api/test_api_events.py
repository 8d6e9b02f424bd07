"""Changes as a stream: what is told to whom, and how one goes on after the connection was lost."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.api.application import application
from operators.api.authentication.access import Principal
from operators.api.model.changes import Changes
from operators.api.replies.problems import BusyError
from operators.api.routes.open_streams import OpenStreams
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


def test_what_changed_since_an_event_is_reported(place: Any) -> None:
    for phase in ("Starting", "Running"):
        place.source.change("u2", phase=phase)
    place.source.changes.add("device", "w1/0")
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


def test_a_job_that_is_gone_is_reported(place: Any) -> None:
    place.source.changes.add("job", "u9", "lab")
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
    assert not len(place.app.state.streams)


def test_a_user_has_a_limited_number_of_streams(place: Any) -> None:
    streams = place.app.state.streams
    held = [streams.enter("root") for _ in range(3)]
    try:
        assert place.status("/events") == (503, "busy")
        assert events(place, "ann-token", namespace="lab")
    finally:
        for stream in held:
            streams.leave("root", stream)
    assert events(place)
    assert not len(streams)  # a stream whose client hung up is not counted


def test_one_user_cannot_take_the_streams_of_all() -> None:
    """200 places, 20 for each user: ten users with 20 each, and an eleventh still gets its share."""

    async def story() -> None:
        streams = OpenStreams(most=200, most_each=20)
        held = {f"u{user}": [streams.enter(f"u{user}") for _ in range(20)] for user in range(10)}
        with pytest.raises(BusyError, match="you have 20 event streams open"):
            streams.enter("u0")
        for _ in range(18):
            streams.enter("late")
        assert len(streams) == 200
        assert sum(stream.evicted for each in held.values() for stream in each) == 18
        assert all(each[0].evicted and not each[-1].evicted for each in held.values())
        with pytest.raises(BusyError, match="taken by other users"):
            streams.enter("late")

    asyncio.run(story())


def test_a_stream_that_loses_its_place_ends_at_once() -> None:
    async def story() -> None:
        streams = OpenStreams(most=1, most_each=1)
        first = streams.enter("a")
        with pytest.raises(BusyError):
            streams.enter("b")  # nobody has more than b would have
        first.evict()
        async with asyncio.timeout(20):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(3600) as first.deadline:
                    first.evict()
                    await asyncio.sleep(3600)
        streams.leave("a", first)
        streams.leave("a", first)
        assert not len(streams)

    asyncio.run(story())


def test_an_evicted_stream_is_closed_while_it_waits_for_events(make_services: Any, make_told: Any) -> None:
    """Over a real socket: the client sees the end of the reply, and the place is free."""
    app = application(make_services(source=make_told(), heartbeat_s=3600))

    async def story() -> None:
        lines: list[str] = []
        first = asyncio.Event()
        headers = [(b"authorization", b"Bearer root-token"), (b"host", b"127.0.0.1")]
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/api/v1/events",
            "raw_path": b"/api/v1/events",
            "query_string": b"",
            "headers": headers,
            "http_version": "1.1",
            "scheme": "http",
            "root_path": "",
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "app": app,
        }

        async def receive() -> dict[str, Any]:
            await asyncio.sleep(3600)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            lines.append(message.get("body", b"").decode())
            if "retry:" in lines[-1]:
                first.set()

        reply = asyncio.create_task(app(scope, receive, send))
        async with asyncio.timeout(20):
            await first.wait()
            (stream,) = app.state.streams._by_tenant["root"]
            stream.evict()
            await reply
        assert not len(app.state.streams)

    asyncio.run(story())


def test_service_accounts_of_a_namespace_share_their_places() -> None:
    accounts = {Principal(f"system:serviceaccount:lab:a{number}").tenant for number in range(3)}
    assert accounts == {"system:serviceaccount:lab"}
    assert Principal("ann").tenant == "ann"
    assert Principal("oidc:ann@example.com").tenant == "oidc:ann@example.com"


def test_changes_that_were_dropped_are_known_to_be() -> None:
    changes = Changes("e", most=3)
    for number in range(5):
        changes.add("job", f"u{number}")
    assert [change.subject for change in changes.after(2) or ()] == ["u2", "u3", "u4"]
    assert changes.after(1) is None
    assert changes.number_of("e-2") == 2
    assert changes.number_of("e-1") is None
    assert changes.number_of("e-6") is None


@given(st.lists(st.integers(0, 6)), st.integers(1, 8))
def test_a_reader_at_its_own_pace_misses_nothing_or_is_reported(pace: list[int], most: int) -> None:
    """Between two looks any number of changes; what isn't told one by one is told as a loss."""
    changes, told, read, lost = Changes("e", most), [], 0, 0
    for several in pace:
        for _ in range(several):
            changes.add("job", str(changes.last + 1))
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
        changes.add("reset")
        await asyncio.wait_for(asyncio.gather(*waiting), 20)
        await changes.wait(0)  # there is news already

    asyncio.run(story())
