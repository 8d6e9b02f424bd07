"""A consumer group gets each event once, in order; after a crash it gets unacknowledged events again."""

from __future__ import annotations

import pytest

from sharing_manager.store.entries import Entry, EntryId, furthest, stream_of
from sharing_manager.store.reader import GroupReader
from sharing_manager.store.redis_errors import StoreUnavailableError
from sharing_manager.store.redis_link import RedisLink


@pytest.fixture
def server(redis_server):
    return redis_server.start()


@pytest.fixture
def write(server):
    """`write(node, numbers)`: entries as a shipper appends them."""

    def write(node, numbers, epoch=100):
        link = RedisLink(server.url, "URL", node)
        link.open()
        link.append(epoch, [Entry(node, number, 1, 2, "progress", "j", "j", number, number + 1) for number in numbers])
        link.close()

    return write


@pytest.fixture
def make_reader(server):
    return lambda group="g", consumer="c": GroupReader(server.client(), "redis", group, consumer)


def numbers(deliveries):
    return [(delivery.entry.node, delivery.entry.sequence) for delivery in deliveries]


def drain(reader, count=7):
    """Read and acknowledge until nothing comes."""
    found = []
    while len(found) < 10_000:
        some = reader.read(count)
        if not some and not reader.read(count):
            return found
        found += numbers(some)
        reader.acknowledge(some)
    raise AssertionError("it never ends")


def test_each_group_gets_each_event_of_each_node_once_in_the_nodes_order(write, make_reader):
    write("a", range(1, 31))
    write("b", range(1, 11))
    for group in ("g", "h"):
        found = drain(make_reader(group))
        assert [number for node, number in found if node == "a"] == list(range(1, 31))
        assert [number for node, number in found if node == "b"] == list(range(1, 11))
    assert drain(make_reader("g")) == []


def test_what_was_not_acknowledged_comes_again_after_a_crash_and_before_anything_newer(write, make_reader):
    write("a", range(1, 21))
    first = make_reader(consumer="old")
    some = first.read(10)
    first.acknowledge(some[:4])
    second = make_reader(consumer="new")
    assert drain(second) == [("a", number) for number in range(5, 21)]
    assert drain(make_reader(consumer="old")) == []


def test_a_node_that_comes_later_and_events_that_come_later_are_read(write, make_reader):
    reader = make_reader()
    assert reader.read() == []
    write("a", [1])
    assert drain(reader) == [("a", 1)]
    write("b", [1, 2])
    write("a", [2])
    assert sorted(drain(reader)) == [("a", 2), ("b", 1), ("b", 2)]
    assert reader.read(block_ms=20) == []


def test_a_redis_that_forgot_what_it_gave_gives_nothing_twice(server, write, make_reader):
    """A fail-over to a replica that lags: the stream is shorter, the group is older; then the shipper repeats."""
    reader = make_reader()
    write("a", range(1, 11))
    assert len(drain(reader)) == 10
    server.client().delete(stream_of("a"))
    write("a", range(1, 9))
    reader.read()  # makes the group anew
    write("a", range(9, 13))
    assert drain(reader) == [("a", 11), ("a", 12)]
    assert server.client().xpending(stream_of("a"), "g")["pending"] == 0


def test_an_event_that_was_deleted_unread_is_reported_as_such(server, write, make_reader):
    write("a", [1, 2])
    reader = make_reader(consumer="c")
    reader.read()
    server.client().xdel(stream_of("a"), "100-1")
    again = make_reader(consumer="c").read()
    assert [(delivery.id, delivery.entry and delivery.entry.sequence) for delivery in again][-1] == (EntryId(100, 2), 2)


def test_a_redis_that_is_away_is_reported_and_the_same_call_works_later(server, write, make_reader):
    write("a", [1, 2])
    reader = make_reader()
    server.kill()
    with pytest.raises(StoreUnavailableError, match="redis: it can't be reached"):
        reader.read()
    server.start()
    assert drain(reader) == [("a", 1), ("a", 2)]


def test_a_stream_that_is_no_stream_is_reported(server, make_reader):
    server.client().sadd("emugpu:nodes", "a")
    server.client().set(stream_of("a"), "mine")
    with pytest.raises(StoreUnavailableError, match="holds something else"):
        make_reader().read()


def test_a_late_outbox_does_not_take_progress_back(server):
    link = RedisLink(server.url, "URL", "a")
    link.open()

    def entry(number, done):
        return Entry("a", number, 0, 5_000_000, "progress", "j", "j", 0, done)

    link.append(1, [entry(1, 50)])
    link.append(1, [entry(2, 20)])
    link.raise_progress([("j", 30, 1)])
    link.close()
    assert server.progress("j") == 50 == furthest([entry(1, 50), entry(2, 20)])["j"][0]
