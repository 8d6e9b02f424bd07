"""Trimming deletes only events that every reader has acknowledged."""

from __future__ import annotations

import runpy
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharing_manager.store.entries import Entry, EntryId, stream_of
from sharing_manager.store.reader import GroupReader
from sharing_manager.store.redis_link import RedisLink
from sharing_manager.store.trim import main
from sharing_manager.store.trimming import LEAST_LENGTH, Trimmed, forget_progress, make_room, slowest, trim

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def server(redis_server):
    server = redis_server.start("--stream-node-max-entries", "10")  # so that `~` deletes nearly all that it may
    link = RedisLink(server.url, "URL", "n1")
    link.open()
    link.append(7, [Entry("n1", number, 1, 1, "progress", "j", "j", 0, number) for number in range(1, 101)])
    link.close()
    return server


def left(server):
    return [int(entry_id.partition("-")[2]) for entry_id, _ in server.client().xrange(stream_of("n1"))]


def read(server, group, count, acknowledged):
    reader = GroupReader(server.client(), "redis", group, "c")
    some = reader.read(count) or reader.read(count)
    assert len(some) == count
    reader.acknowledge(some[:acknowledged])


def test_the_slowest_group_decides(server):
    read(server, "fast", 100, 100)
    read(server, "slow", 45, 45)
    done = trim(server.client(), "redis", "n1", max_length=0)
    assert done.removed == 40
    assert "before 7-45" in done.reason
    assert left(server)[0] == 41


def test_what_a_reader_has_but_not_acknowledged_stays(server):
    read(server, "g", 90, 25)
    assert trim(server.client(), "redis", "n1").removed == 20
    assert left(server) == list(range(21, 101))


def test_a_group_that_has_read_nothing_keeps_everything(server):
    read(server, "fast", 100, 100)
    server.client().xgroup_create(stream_of("n1"), "new", "0")
    assert trim(server.client(), "redis", "n1", max_length=3).removed == 0
    assert len(left(server)) == 100


def test_without_readers_only_a_length_that_was_asked_for_counts(server):
    assert trim(server.client(), "redis", "n1") == Trimmed(
        stream_of("n1"), 0, "no group reads it; give --max-length to trim it"
    )
    assert trim(server.client(), "redis", "n1", max_length=30).removed == 70
    assert left(server) == list(range(71, 101))
    assert trim(server.client(), "redis", "other") == Trimmed(stream_of("other"), 0, "there is no such stream")


def test_a_stream_that_has_room_is_left_alone(server):
    assert make_room(server.client(), "redis", "n1", 100) == Trimmed(
        stream_of("n1"), 0, "it has no more than 100 entries"
    )
    assert len(left(server)) == 100
    assert make_room(server.client(), "redis", "other", 100).removed == 0


def append(server, first, last):
    link = RedisLink(server.url, "URL", "n1")
    link.open()
    link.append(7, [Entry("n1", n, 1, 1, "progress", "j", "j", 0, n) for n in range(first, last + 1)])
    link.close()


def test_a_stream_far_beyond_its_length_is_brought_back_at_once(server):
    """Redis deletes a hundred blocks at a time unless told otherwise: here a thousand entries."""
    append(server, 101, 6_000)
    assert make_room(server.client(), "redis", "n1", 50).removed == 5_950
    assert left(server) == list(range(5_951, 6_001))


def test_a_reader_needs_more_than_the_length(server):
    read(server, "g", 60, 45)
    done = make_room(server.client(), "redis", "n1", 20)
    assert left(server) == list(range(41, 101))
    assert done.reason.endswith(
        "group 'g' needs the rest: start its reader, or delete the group if it isn't used any more"
        " (XGROUP DESTROY emugpu:events:n1 g)"
    )


def test_when_redis_is_full_half_of_what_nobody_reads_goes_but_not_all(server):
    append(server, 101, 4 * LEAST_LENGTH)
    lengths = []
    for _ in range(4):
        make_room(server.client(), "redis", "n1", 1_000_000, urgent=True)
        lengths.append(len(left(server)))
    assert lengths == [2 * LEAST_LENGTH, LEAST_LENGTH, LEAST_LENGTH, LEAST_LENGTH]


def test_when_redis_is_full_what_a_reader_needs_stays(server):
    append(server, 101, 4 * LEAST_LENGTH)
    read(server, "g", 60, 45)
    make_room(server.client(), "redis", "n1", 1_000_000, urgent=True)
    assert left(server)[0] == 41


IDS = st.builds(EntryId, st.integers(0, 3), st.integers(0, 9))


@given(st.dictionaries(st.sampled_from("abcde"), st.tuples(IDS, st.none() | IDS)))
def test_no_entry_at_or_above_what_any_group_still_needs_goes(groups):
    found = slowest(groups)
    assert (found is None) == (not groups)
    for delivered, pending in groups.values():
        assert found[0] <= delivered
        assert pending is None or found[0] <= pending
    if found is not None:
        assert found[0] in groups[found[1]]


def test_progress_of_jobs_not_heard_of_for_long_is_forgotten(server):
    client = server.client()
    old, recent = {f"old{number}": number for number in range(1_200)}, {"recent": 10_000}
    client.zadd("emugpu:progress", {**dict.fromkeys(old, 1), "recent": 5})
    client.zadd("emugpu:progress:seen", {**old, **recent})
    assert forget_progress(client, "redis", 10_000) == 1_201  # and the job of the fixture, seen at 0
    assert client.zrange("emugpu:progress", 0, -1, withscores=True) == [("recent", 5.0)]
    assert client.zrange("emugpu:progress:seen", 0, -1) == ["recent"]


def test_the_command_trims_all_nodes_and_forgets(server, capsys):
    read(server, "g", 100, 100)
    arguments = ["--forget-days", "2"]
    assert main(arguments, {"EMUGPU_MANAGER_REDIS_URL": server.url}, lambda: 3 * DAY_MS * 1_000_000) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("emugpu:events:n1: 90 entries deleted; all groups")
    assert second == "emugpu:progress: 1 jobs forgotten"
    assert main(["--url", server.url, "--node", "n2"], {}) == 0
    assert "n2: 0 entries deleted; there is no such stream" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "--url: is missing: give Redis's address there or in EMUGPU_MANAGER_REDIS_URL"),
        (["--url", "http://x"], "--url: 'http://x' is not a Redis URL"),
        (["--url", "unix:///nowhere/s"], "unix:///nowhere/s: it can't be reached"),
        (["--url", "unix:///nowhere/s", "--max-length", "-1"], "--max-length: must be at least 0, got -1"),
        (["--url", "unix:///nowhere/s", "--forget-days", "0"], "--forget-days: must be above 0, got 0"),
    ],
)
def test_what_is_wrong_is_one_line(capsys, arguments, line):
    assert main(arguments, {}) == 1
    assert capsys.readouterr().err.startswith(line)


def test_it_is_a_program(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["trim", "--help"])
    monkeypatch.delitem(sys.modules, "sharing_manager.store.trim")
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module("sharing_manager.store.trim", run_name="__main__")
    assert "--max-length" in capsys.readouterr().out
