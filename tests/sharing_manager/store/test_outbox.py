"""The outbox stays within its bounds, and a file that fails doesn't end the shipper."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import time

import pytest

from sharing_manager.store.entries import EntryId
from sharing_manager.store.outbox import CHUNK_ROWS, Outbox, size_of
from sharing_manager.store.resume import Position
from sharing_manager.store.shipper import TAIL_ROWS, TAIL_S, Bounds, Shipper
from sharing_manager.store.trimming import Trimmed


class Sink:
    """Takes everything; `last` is what it says it has."""

    place = "sink"

    def __init__(self):
        self.last, self.progress = None, {}
        self.trims, self.trim_error = [], None

    def open(self):
        return []

    def last_id(self):
        return self.last

    def highest_of(self, epoch):
        return None

    def append(self, epoch, entries):
        self.last = EntryId(epoch, entries[-1].sequence)

    def raise_progress(self, known):
        self.progress.update({key: steps for key, steps, _ in known})

    def make_room(self, length, *, urgent):
        self.trims.append((length, urgent))
        if self.trim_error is not None:
            raise self.trim_error
        return Trimmed("stream", 0, "that is all")

    def close(self):
        pass


@pytest.fixture
def outbox(log):
    with contextlib.closing(log.outbox()) as outbox:
        yield outbox


@pytest.fixture
def make_shipper(outbox):
    """A shipper whose clock goes on by `turn_s` each time it is read."""

    def make(link, turn_s=2.0, outbox_bytes=10_000_000, stream_length=60_000):
        lines = []
        clock = itertools.count(0, round(turn_s * 1e9))
        shipper = Shipper(
            outbox,
            link,
            Bounds(outbox_bytes, stream_length),
            lines.append,
            now_ns=lambda: next(clock),
            now_ms=lambda: 1_700_000_000_000,
        )
        return shipper, lines

    return make


def ship_all(shipper):
    while shipper.attempt():
        pass


def test_what_was_shipped_long_ago_is_deleted_but_for_a_tail(log, outbox, make_shipper):
    log.run("a", TAIL_ROWS + 3 * CHUNK_ROWS)
    shipper, _ = make_shipper(Sink())
    ship_all(shipper)
    rows = len(log.sequences())
    for _ in range(40):
        shipper.make_room()
    assert log.sequences() == [entry.sequence for entry in log.recorded[-TAIL_ROWS:]]
    assert rows == len(log.recorded)
    assert outbox.progress_of("team/uid-a/0") == TAIL_ROWS + 3 * CHUNK_ROWS


def test_nothing_is_deleted_that_was_shipped_just_now_or_not_at_all(log, make_shipper):
    log.run("a", TAIL_ROWS + 500)
    shipper, _ = make_shipper(Sink(), turn_s=TAIL_S / 100)
    for _ in range(30):
        shipper.make_room()
    ship_all(shipper)
    for _ in range(30):
        shipper.make_room()
    assert len(log.sequences()) == TAIL_ROWS + 501


def test_a_redis_that_forgot_more_than_the_tail_is_told_how_far_the_jobs_are(log, make_shipper):
    log.run("old", 500)
    log.run("new", TAIL_ROWS)
    link = Sink()
    shipper, lines = make_shipper(link)
    ship_all(shipper)
    for _ in range(20):
        shipper.make_room()
    kept = len(log.sequences())
    link.last, link.progress = None, {}
    shipper.attempt()
    assert link.progress == {"team/uid-old/0": 500, "team/uid-new/0": TAIL_ROWS}
    assert shipper.counts.lost == len(log.recorded) - kept == 502
    assert f"up to {kept} are sent again, up to 502 are lost" in lines[-1]
    ship_all(shipper)
    assert link.last.sequence == log.recorded[-1].sequence


def test_the_backlog_is_counted_as_it_grows_and_shrinks(log, outbox, make_shipper):
    shipper, _ = make_shipper(Sink())
    log.run("a", 200)
    assert shipper.measure().size_bytes == sum(size_of(entry) for entry in log.recorded)
    log.record("failed", "ä", detail="gönnt")
    measured = shipper.measure()
    assert measured == outbox.backlog()
    assert (measured.rows, measured.oldest_wall_ns) == (202, 7_000_000)
    assert measured.size_bytes == sum(size_of(entry) for entry in log.recorded)
    shipper.attempt()
    assert shipper.backlog == outbox.backlog()
    ship_all(shipper)
    assert shipper.measure().rows == shipper.measure().size_bytes == 0


def test_what_may_have_been_sent_is_not_changed_any_more(log, outbox):
    log.run("a", 9)
    outbox.mark_sent(5)
    outbox.compact(10**9)
    assert log.sequences() == [1, 2, 3, 4, 5, 10]
    assert outbox.merged() == 4
    last = outbox.batch(10)[-1]
    assert (last.from_step, last.steps_done, last.absorbed) == (4, 9, 4)


def test_what_a_shipper_knows_survives_it(log, outbox):
    log.run("a", 3)
    outbox.resume_at(Position(7, 3, 2, 1))
    with contextlib.closing(Outbox(log.path, "n1", lambda: 99)) as again:
        assert again.position() == Position(7, 3, 2, 1)
        assert [entry.sequence for entry in again.batch(10)] == [3, 4]


def test_a_change_that_fails_is_undone(log, outbox):
    log.run("a", 9)
    with contextlib.closing(sqlite3.connect(log.path)) as db:
        db.execute("create trigger full before update on outbox begin select raise(abort, 'disk full'); end")
    with pytest.raises(sqlite3.Error, match="disk full"):
        outbox.compact(10**9)
    assert len(log.sequences()) == 10


def test_a_file_that_fails_under_the_shipper_is_opened_again(redis_server, log, make_store, eventually):
    server = redis_server.start()
    store = make_store(log, server.url)
    log.run("a", 3)
    with contextlib.closing(sqlite3.connect(log.path)) as db:
        db.execute("create trigger full before update on outbox begin select raise(abort, 'disk full'); end")
        store.start()
        eventually(lambda: store.lines)
        time.sleep(0.3)
        assert store.lines == ["the event log can't be read for shipping (disk full); it is opened again"]
        db.execute("drop trigger full")
        eventually(lambda: len(server.stream("n1")) == 4)


def test_a_file_that_is_away_for_a_while_is_waited_for(redis_server, log, make_store, eventually):
    server = redis_server.start()
    log.run("a", 3)
    store = make_store(log, server.url)
    away = log.path.with_suffix(".away")
    log.path.rename(away)
    log.path.mkdir()
    store.start()
    eventually(lambda: store.lines)
    assert "can't use this file as outbox" in store.lines[0]
    log.path.rmdir()
    away.rename(log.path)
    eventually(lambda: len(server.stream("n1")) == 4)
