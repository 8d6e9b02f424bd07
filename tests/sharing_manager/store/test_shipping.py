"""Events from the outbox to a real Redis, through crashes on either side."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise

import pytest

from sharing_manager.store.entries import stream_of
from sharing_manager.store.reader import GroupReader
from sharing_manager.store.redis_errors import StoreUnavailableError
from sharing_manager.store.shipper import Shipper

SHIPPER = """
import sys, time
from types import SimpleNamespace
from pathlib import Path
from sharing_manager.store import connect
settings = SimpleNamespace(
    node=sys.argv[1], redis_url=sys.argv[2], outbox_bytes=10**8, stream_length=60_000, state_file=Path(sys.argv[3])
)
store = connect(settings, None, None)
store.start()
time.sleep(60)
"""


def shipped(server, node="n1"):
    return [entry for _, entry in server.stream(node)]


def test_events_arrive_in_order_with_their_numbers_and_the_progress_they_tell(
    redis_server, log, make_store, eventually
):
    server = redis_server.start()
    log.run("a", 300)
    store = make_store(log, server.url)
    store.start()
    log.record("finished", "a", 301)
    store.notify()
    eventually(lambda: server.progress("team/uid-a/0") == 301)
    found = server.stream("n1")
    assert [entry for _, entry in found] == log.recorded
    epochs = {entry_id.partition("-")[0] for entry_id, _ in found}
    assert len(epochs) == 1
    assert [int(entry_id.partition("-")[2]) for entry_id, _ in found] == [entry.sequence for entry in log.recorded]
    assert server.client().zscore("emugpu:progress:seen", "team/uid-a/0") == 7
    assert server.client().smembers("emugpu:nodes") == {"n1"}
    eventually(lambda: store.status().backlog_rows == 0)
    assert store.status().shipped == 302
    assert store.status().connected


def test_redis_killed_and_restarted_from_its_file_in_the_middle(redis_server, log, make_store, eventually):
    server = redis_server.start()
    store = make_store(log, server.url)
    store.start()
    for round_number in range(3):
        log.run(f"job{round_number}", 400)
        store.notify()
        eventually(lambda: server.client().xlen(stream_of("n1")) > 451 * round_number)  # noqa: B023
        server.kill()
        log.run(f"late{round_number}", 50)
        eventually(lambda: store.status().problem == "away")
        server.start()
        eventually(lambda: shipped(server) == log.recorded)
    assert shipped(server) == log.recorded
    lines = [line for line in store.lines if "still reading its files" not in line]  # seldom, while it starts
    assert [("can't be reached" in line, ": connected again;" in line) for line in lines] == [
        (True, False),
        (False, True),
    ] * 3
    assert store.status().connections == 4
    assert (store.status().rewound, store.status().lost) == (0, 0)


def test_a_redis_that_forgot_everything_gets_again_what_is_still_here(redis_server, log, make_store, eventually):
    server = redis_server.start(persistent=False)
    store = make_store(log, server.url)
    store.start()
    log.run("a", 200)
    eventually(lambda: shipped(server) == log.recorded)
    server.kill()
    eventually(lambda: store.status().problem == "away")
    server.start(persistent=False)
    eventually(lambda: shipped(server) == log.recorded)
    assert server.progress("team/uid-a/0") == 200
    assert (store.status().rewound, store.status().lost) == (1, 0)
    assert [line for line in store.lines if "up to 201 are sent again, up to 0 are lost" in line]
    assert len([line for line in store.lines if "appendonly no" in line]) == 1  # said once, not at each connection


def test_a_redis_that_is_replaced_between_two_events_leaves_no_gap(redis_server, log, make_store, eventually):
    """redis-py would connect again unasked, and the next event's id would fit as well behind the gap."""
    server = redis_server.start(persistent=False)
    store = make_store(log, server.url)
    store.start()
    for number in range(3):
        log.run(f"job{number}", 20)
        eventually(lambda: shipped(server) == log.recorded)
        server.kill()
        server.start(persistent=False)
    log.run("last", 1)
    eventually(lambda: shipped(server) == log.recorded)
    assert store.status().lost == 0


def test_a_shipper_that_is_killed_leaves_nothing_out_and_repeats_nothing(redis_server, log, eventually):
    server = redis_server.start()
    arguments = [sys.executable, "-c", SHIPPER, "n1", server.url, str(log.path)]
    log.run("a", 2_000)
    for _ in range(2):
        before = server.client().xlen(stream_of("n1"))
        with subprocess.Popen(arguments) as process:
            eventually(lambda: server.client().xlen(stream_of("n1")) > before)  # noqa: B023
            os.kill(process.pid, signal.SIGKILL)
        log.run(f"b{before}", 2_000)
    with subprocess.Popen(arguments) as process:
        eventually(lambda: server.client().xlen(stream_of("n1")) == len(log.recorded))
        process.kill()
    assert shipped(server) == log.recorded


def test_two_nodes_and_a_job_that_moved_while_one_of_them_was_cut_off(redis_server, make_log, make_store, eventually):
    server = redis_server.start()
    here, there = make_log("here"), make_log("there")
    here.record("granted", "j")
    here.record("progress", "j", 40)
    there.record("granted", "j", 90)
    there_store = make_store(there, server.url)
    there_store.start()
    eventually(lambda: server.progress("team/uid-j/0") == 90)
    make_store(here, server.url).start()  # its outbox comes late
    eventually(lambda: shipped(server, "here") == here.recorded)
    assert server.progress("team/uid-j/0") == 90
    assert shipped(server, "there") == there.recorded
    assert server.client().smembers("emugpu:nodes") == {"here", "there"}


def test_what_does_not_fit_while_redis_is_away_is_merged_and_accounted_for(redis_server, log, make_store, eventually):
    store = make_store(log, redis_server.url, outbox_bytes=20_000)
    store.start()
    for step in range(1, 301):
        log.record("progress", "a", step)
        log.record("progress", "b", 2 * step)
    log.record("finished", "a", 301)
    eventually(lambda: store.status().backlog_bytes <= 20_000 and store.status().merged)
    status = store.status()
    assert not status.connected
    redis_server.start()
    eventually(lambda: store.status().connected and store.status().backlog_rows == 0)
    assert redis_server.progress("team/uid-a/0") == 301
    found = shipped(redis_server)
    assert sum(1 + entry.absorbed for entry in found) == len(log.recorded)
    assert store.status().merged == len(log.recorded) - len(found) > 0
    for job, end in (("uid-a/0", 301), ("uid-b/0", 600)):
        ranges = [(entry.from_step, entry.steps_done) for entry in found if entry.job_id == job]
        assert ranges[0][0] == 0
        assert ranges[-1][1] == end
        assert all(before[1] == after[0] for before, after in pairwise(ranges))


def test_an_outbox_of_events_that_may_not_be_lost_grows_and_says_so_once(log, make_store, eventually):
    store = make_store(log, "unix:///nowhere/s", outbox_bytes=4096)
    store.start()
    for number in range(100):
        log.record("granted", f"job{number}")
    eventually(lambda: any("can't be merged or deleted" in line for line in store.lines))
    time.sleep(0.2)
    # logged again when the outbox has grown by a quarter
    assert len([line for line in store.lines if "can't be merged or deleted" in line]) <= 5
    assert log.sequences() == list(range(1, 101))
    assert store.status().merged == 0


def test_stop_ships_what_is_left(redis_server, log, make_store):
    server = redis_server.start()
    store = make_store(log, server.url)
    store.start()
    log.run("a", 500)
    store.stop(drain_s=5.0)
    store.stop()
    assert shipped(server) == log.recorded


def test_a_second_log_under_the_same_name_goes_on_behind_the_first(redis_server, make_log, make_store, eventually):
    """The node's directory was lost and the host's clock went back meanwhile: no id may be taken for a repetition."""
    server = redis_server.start()
    server.client().xadd(stream_of("n1"), {"kind": "x"}, id="9000000000000-5")
    log = make_log("n1")
    log.run("a", 10)
    store = make_store(log, server.url)
    store.start()
    eventually(lambda: server.client().xlen(stream_of("n1")) == 12)
    ids = [entry_id for entry_id, _ in server.client().xrange(stream_of("n1"))]
    assert ids[1:] == [f"9000000000001-{number}" for number in range(1, 12)]
    assert any("newer event log" in line for line in store.lines)


def test_another_writer_in_the_middle_of_shipping_costs_nothing(redis_server, log, make_store, eventually):
    server = redis_server.start()
    store = make_store(log, server.url)
    store.start()
    log.run("a", 5)
    eventually(lambda: len(shipped(server)) == 6)
    server.client().xadd(stream_of("n1"), {"kind": "x"}, id="9000000000000-1")
    log.run("b", 5)
    store.notify()
    eventually(lambda: server.client().xlen(stream_of("n1")) == 13)
    assert store.status().problem == ""
    assert server.progress("team/uid-b/0") == 5


@pytest.mark.parametrize("lost", [3, 11])
def test_a_log_that_lost_events_in_a_power_cut_does_not_lose_new_ones(redis_server, log, make_store, eventually, lost):
    server = redis_server.start()
    store = make_store(log, server.url)
    store.start()
    log.run("a", 10)
    eventually(lambda: len(shipped(server)) == 11)
    store.stop()
    log.forget_after(11 - lost)
    with contextlib.closing(log.outbox()) as outbox:
        position = outbox.position()
    log.run("b", 4)
    store = make_store(log, server.url)
    store.start()
    eventually(lambda: server.progress("team/uid-b/0") == 4)
    new = [entry for entry_id, entry in server.stream("n1") if int(entry_id.partition("-")[0]) > position.epoch]
    assert new == [entry for entry in log.recorded if entry.job_id == "uid-b/0"]
    assert any("power cut" in line for line in store.lines)


def test_a_reader_gets_everything_once_while_redis_and_the_reader_are_killed(
    redis_server, make_log, make_store, eventually
):
    server = redis_server.start()
    logs = [make_log("a"), make_log("b")]
    stores = [make_store(log, server.url) for log in logs]
    for store in stores:
        store.start()
    got = {"a": [], "b": []}
    give_up = time.monotonic() + 20
    for turn in itertools.count():
        if turn < 60:
            for log in logs:
                log.run(f"job{turn}", 20)
        if turn in (15, 40):
            server.kill()
            server.start()
        if turn % 20 == 0:
            reader = GroupReader(server.client(), "redis", "g", f"reader{turn}")  # the former one has crashed
        with contextlib.suppress(StoreUnavailableError):
            some = reader.read(50, block_ms=5)
            if turn % 20 != 19:  # or it crashes before it has done anything with them
                reader.acknowledge(some)
                for delivery in some:
                    got[delivery.entry.node].append(delivery.entry)
        if turn >= 60 and all(len(got[log.node]) >= len(log.recorded) for log in logs):
            break
        assert time.monotonic() < give_up, {node: len(entries) for node, entries in got.items()}
    for log in logs:
        assert [entry.sequence for entry in got[log.node]] == [entry.sequence for entry in log.recorded]
        assert got[log.node] == log.recorded


def test_shipping_goes_on_after_a_mistake_of_ours(redis_server, log, make_store, eventually, monkeypatch, caplog):
    server = redis_server.start()
    fine, seen = Shipper.make_room, []

    def odd(shipper):
        fine(shipper)
        if len(seen) < 3:
            seen.append(store.status())
            raise RuntimeError("odd")

    monkeypatch.setattr(Shipper, "make_room", odd)
    store = make_store(log, server.url)
    log.run("a", 3)
    store.start()
    eventually(lambda: len(seen) == 3 and store.status().connected)
    log.run("b", 3)
    eventually(lambda: [entry for _, entry in server.stream("n1")] == log.recorded)
    assert [(status.connected, status.problem) for status in seen[1:]] == [(False, "failure")] * 2
    assert store.lines.count("shipping failed unexpectedly (RuntimeError('odd')); it is started again") == 1
    assert caplog.text.count("shipping events failed") == 1
    assert store.status().problem == ""
