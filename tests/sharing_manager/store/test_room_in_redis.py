"""The stream's length: trimmed regularly, and at once when Redis is out of memory."""

from __future__ import annotations

import contextlib
import itertools
from random import Random
from types import SimpleNamespace

import pytest

from emulator_runtime.retrying import Backoff
from sharing_manager.store.entries import EntryId, stream_of
from sharing_manager.store.reader import GroupReader
from sharing_manager.store.redis_errors import StoreUnavailableError, StreamMovedError
from sharing_manager.store.redis_store import RedisStore
from sharing_manager.store.shipper import BATCH_ROWS, TRIM_S, Bounds, Shipper
from sharing_manager.store.trimming import LEAST_LENGTH, Trimmed

MEMORY = StoreUnavailableError("link", "memory", "it has no memory left")


class Link:
    """Takes everything unless `refuses` says otherwise; remembers what it was asked for."""

    place = "link"

    def __init__(self):
        self.calls, self.refuses, self.appended, self.trim_error = [], itertools.repeat(None), 0, None
        self.open_error = self.last = None

    def open(self):
        self.calls.append("open")
        if self.open_error is not None:
            raise self.open_error
        return []

    def last_id(self):
        return self.last

    def highest_of(self, epoch):
        return None

    def append(self, epoch, entries):
        error = next(self.refuses)
        if error is not None:
            raise error
        self.appended += len(entries)
        self.last = EntryId(epoch, entries[-1].sequence)

    def raise_progress(self, known):
        self.calls.append(("progress", {key: steps for key, steps, _ in known}))

    def make_room(self, length, *, urgent):
        self.calls.append(("trim", length, urgent))
        if self.trim_error is not None:
            raise self.trim_error
        return Trimmed("stream", 5, "that is all")

    def close(self):
        self.calls.append("close")


@pytest.fixture
def link():
    return Link()


@pytest.fixture
def shipper(log, link):
    """With `lines` and a `clock` [ns]."""
    clock, lines = [0], []
    with contextlib.closing(log.outbox()) as outbox:
        shipper = Shipper(
            outbox, link, Bounds(10**6, 5_000), lines.append, now_ns=lambda: clock[0], now_ms=lambda: 1_000
        )
        shipper.clock, shipper.lines = clock, lines
        yield shipper


def trims(link):
    return [call for call in link.calls if call[0] == "trim"]


def test_the_stream_is_trimmed_at_the_start_and_once_a_minute(shipper, link):
    shipper.attempt()
    assert trims(link) == [("trim", 5_000, False)]
    shipper.clock[0] = round(TRIM_S * 1e9) - 1
    shipper.attempt()
    assert len(trims(link)) == 1
    shipper.clock[0] += 1
    shipper.attempt()
    shipper.attempt()
    assert len(trims(link)) == 2


def test_a_busy_stream_is_trimmed_whenever_it_has_grown_by_a_tenth(shipper, link, log):
    shipper.attempt()
    log.run("a", 2 * 4 * BATCH_ROWS)
    while shipper.attempt():
        pass
    assert len(trims(link)) == 1 + 2  # each tenth are 500 entries, four batches


def test_a_user_who_may_not_trim_ships_all_the_same_and_it_is_said_once(shipper, link, log):
    link.trim_error = StoreUnavailableError("link", "permission", "its user may not run this command")
    log.run("a", 3)
    assert shipper.attempt() == 4
    shipper.clock[0] = round(2 * TRIM_S * 1e9)
    shipper.attempt()
    assert len(trims(link)) == 2
    assert [line for line in shipper.lines if "may not run" in line] == [
        "link: its user may not run this command; events are still shipped, but the stream grows until Redis is full"
    ]


def test_a_redis_that_goes_away_while_it_is_trimmed_is_away(shipper, link):
    link.trim_error = StoreUnavailableError("link", "away", "it can't be reached")
    with pytest.raises(StoreUnavailableError, match="can't be reached"):
        shipper.attempt()


def test_without_memory_room_is_made_at_once_before_the_connection_is_given_up(shipper, link, log):
    shipper.attempt()
    link.refuses, link.open_error = itertools.repeat(MEMORY), MEMORY
    log.record("progress", "a", 7)
    for _ in range(2):
        link.calls.clear()
        with pytest.raises(StoreUnavailableError) as caught:
            shipper.attempt()
        shipper.failed(caught.value)
        assert link.calls[-2:] == [("trim", 5_000, True), "close"]
    assert shipper.lines == [
        "link: it has no memory left; events wait on this node",
        "link: stream: 5 entries deleted to make room; that is all",
    ]


def test_without_memory_nor_a_connection_nothing_more_goes_wrong(shipper, link):
    link.trim_error = StoreUnavailableError("link", "away", "the connection broke")
    shipper.failed(MEMORY)
    assert (shipper.problem, link.calls[-1]) == ("memory", "close")
    assert len(shipper.lines) == 1


def test_after_a_trouble_progress_is_reported_before_the_events_that_waited(shipper, link, log):
    log.run("old", 3)
    shipper.attempt()
    shipper.failed(MEMORY)
    log.run("a", 9)
    log.record("progress", "b", 5)
    link.calls.clear()
    shipper.attempt()
    assert link.calls == ["open", ("progress", {"team/uid-a/0": 9, "team/uid-b/0": 5})]


def test_a_second_writer_under_the_same_name_is_named_and_does_not_end_shipping(shipper, link, log):
    log.run("a", 3)
    link.refuses = itertools.chain([StreamMovedError("x"), StreamMovedError("x")], itertools.repeat(None))
    with pytest.raises(
        StoreUnavailableError, match="another manager keeps writing to the stream of this node's name"
    ) as caught:
        shipper.attempt()
    assert caught.value.kind == "second-writer"
    shipper.failed(caught.value)
    assert shipper.attempt() == 4


@pytest.mark.parametrize(("problem", "expected"), [("memory", 1), ("away", 0)])
def test_look_ups_hear_that_redis_is_full(log, link, eventually, problem, expected):
    link.refuses = itertools.chain([StoreUnavailableError("link", problem, "x")], itertools.repeat(None))
    heard = []
    lookups = SimpleNamespace(start=lambda: None, stop=lambda timeout_s: None, distrust=lambda: heard.append(1))
    log.run("a", 3)
    store = RedisStore(log.outbox, link, lookups, Backoff(Random("x"), first_s=0.001), Bounds(10**6, 5_000), print)
    store.start()
    eventually(lambda: link.appended == 4)
    store.stop()
    assert len(heard) == expected


# --- with a real Redis ---------------------------------------------------------------------------------------------------


def test_a_stream_stays_within_its_length(redis_server, log, make_store, eventually):
    server = redis_server.start()
    store = make_store(log, server.url, stream_length=1000)
    log.run("a", 4_000)
    store.start()
    eventually(lambda: server.progress("team/uid-a/0") == 4_000)
    store.stop()
    found = [entry for _, entry in server.stream("n1")]
    assert 1_000 <= len(found) <= 1_100 + BATCH_ROWS + 100  # a tenth, a batch, a block
    assert found == log.recorded[-len(found) :]
    assert not store.lines


def test_a_full_redis_makes_room_by_itself(redis_server, log, make_store, eventually):
    server = redis_server.start()
    log.run("a", 500)
    store = make_store(log, server.url)
    store.start()
    client = server.client()  # one: each takes some of the memory
    eventually(lambda: client.zscore("emugpu:progress", "team/uid-a/0") == 500)
    client.config_set("maxmemory", client.info("memory")["used_memory"] + 400_000)
    log.run("b", 8_000)
    store.notify()
    eventually(lambda: client.zscore("emugpu:progress", "team/uid-b/0") == 8_000)
    eventually(lambda: store.status().backlog_rows == 0 and store.status().problem == "")
    found = [entry for _, entry in server.stream("n1")]
    assert LEAST_LENGTH <= len(found) < 8_000
    assert found == log.recorded[-len(found) :]
    assert any("deleted to make room; no group reads it" in line for line in store.lines)


def test_a_reader_that_reads_no_more_is_named_and_loses_nothing(redis_server, log, make_store, eventually):
    server = redis_server.start()
    log.run("a", 3_000)
    store = make_store(log, server.url)
    store.start()
    eventually(lambda: server.client().xlen(stream_of("n1")) == 3_001)
    GroupReader(server.client(), "redis", "lazy", "c").read(1)
    first = server.stream("n1")[0][0]
    server.client().config_set("maxmemory", "1")
    log.run("b", 10)
    store.notify()
    eventually(lambda: any("make room" in line for line in store.lines))
    assert any("XGROUP DESTROY emugpu:events:n1 lazy" in line for line in store.lines)
    assert server.stream("n1")[0][0] == first
    server.client().config_set("maxmemory", "0")
    eventually(lambda: server.progress("team/uid-b/0") == 10)
