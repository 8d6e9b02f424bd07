"""From Redis into the store: each event once, whoever dies in between."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.timing.host import wall_ns
from operators.results.collector import GROUP, Collector, Hooks, start_of
from operators.results.metrics import CollectorMetrics
from operators.results.store import ResultStore
from sharing_manager.store.entries import EntryId, stream_of
from sharing_manager.store.redis_errors import StoreUnavailableError

PROCESS = Path(__file__).with_name("reader_process.py")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.db"


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def make(server, path, registry):
    made = []
    metrics = CollectorMetrics(registry)

    def make(file=None, now_ns=wall_ns, **more):
        made.append(Collector(server.client(), "redis", lambda: ResultStore(file or path), metrics, now_ns, **more))
        return made[-1]

    yield make
    for collector in made:
        collector.stop()
        collector.close()


def drain(collector):
    while collector.attempt(None) or collector.attempt(None):
        pass


def numbers(path, node):
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("select number from events where node = ? order by epoch, sequence", (node,))
        return [number for (number,) in rows]


def pending(server, node):
    return server.client().execute_command("XPENDING", stream_of(node), GROUP)["pending"]


def test_events_of_all_nodes_are_stored_and_acknowledged(server, make, path, registry):
    server.write("a", range(1, 41))
    server.write("b", range(1, 11))
    told = []
    collector = make(hooks=Hooks(on_stored=told.append))
    drain(collector)
    assert (numbers(path, "a"), numbers(path, "b")) == ([*range(1, 41)], [*range(1, 11)])
    assert (pending(server, "a"), pending(server, "b"), collector.problem) == (0, 0, "")
    assert sorted(event.number for batch in told for event in batch.events if event.node == "a") == [*range(1, 41)]
    assert registry.get_sample_value("emugpu_collector_events_total") == 50
    assert registry.get_sample_value("emugpu_collector_up") == 1


def test_the_lag_is_the_age_of_the_oldest_event_of_a_batch(server, make, registry):
    server.write("a", [1])
    collector = make(now_ns=lambda: 1_700_000_000 * 10**9 + 3 * 10**9)
    collector.attempt(None)
    assert registry.get_sample_value("emugpu_collector_lag_seconds") == pytest.approx(3)
    collector.attempt(None)
    assert registry.get_sample_value("emugpu_collector_lag_seconds") == 0


@pytest.mark.processes
@pytest.mark.parametrize("place", ["before-read", "before-store", "mid-store", "before-acknowledge"])
def test_a_reader_that_is_killed_there_leaves_neither_gaps_nor_doubles(server, path, place):
    server.write("a", range(1, 101))
    server.write("b", range(1, 31))
    for after in (2, 1):
        killed = subprocess.run([sys.executable, PROCESS, server.url, path, place, str(after)], capture_output=True)
        assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    if place == "before-acknowledge":
        assert numbers(path, "a"), "it died before it had stored anything"
        assert pending(server, "a") > 0, "it died too late"
    whole = subprocess.run([sys.executable, PROCESS, server.url, path, "none", "0"], capture_output=True)
    assert whole.returncode == 0, whole.stderr.decode()
    assert (numbers(path, "a"), numbers(path, "b")) == ([*range(1, 101)], [*range(1, 31)])
    assert (pending(server, "a"), pending(server, "b")) == (0, 0)


@pytest.mark.processes
def test_a_reader_that_is_killed_at_any_moment_leaves_neither_gaps_nor_doubles(server, path):
    chance, written = random.Random("kill the reader"), 0
    kills = 0
    for _ in range(5):
        reader = subprocess.Popen([sys.executable, PROCESS, server.url, path, "none", "0"], stderr=subprocess.DEVNULL)
        give_up = time.monotonic() + chance.uniform(0.5, 1.2)
        while time.monotonic() < give_up and reader.poll() is None:
            server.write("a", range(written + 1, written + 31))
            written += 30
            time.sleep(0.02)
        kills += reader.poll() is None
        reader.kill()
        reader.wait()
    assert kills >= 2
    whole = subprocess.run([sys.executable, PROCESS, server.url, path, "none", "0"], capture_output=True)
    assert whole.returncode == 0, whole.stderr.decode()
    assert numbers(path, "a") == [*range(1, written + 1)]
    assert pending(server, "a") == 0


def test_a_redis_that_is_killed_and_comes_back_goes_on(server, make, path):
    server.write("a", range(1, 11))
    collector = make()
    drain(collector)
    server.kill()
    with pytest.raises(StoreUnavailableError):
        collector.attempt(None)
    collector.failed(StoreUnavailableError("redis", "away", "it can't be reached"))
    assert (collector.problem, collector.away) == ("redis: it can't be reached", True)
    server.start()
    server.write("a", range(11, 21))
    drain(collector)
    assert (numbers(path, "a"), collector.problem, collector.away) == ([*range(1, 21)], "", False)


def test_a_redis_that_comes_back_empty_goes_on_with_what_nodes_send_again(server, make, path):
    server.write("a", range(1, 11))
    collector = make()
    drain(collector)
    server.empty()
    collector.failed(StoreUnavailableError("redis", "away", "it can't be reached"))
    server.write("a", range(6, 16))
    drain(collector)
    assert numbers(path, "a") == [*range(1, 16)]


def test_a_redis_that_forgot_its_acknowledgements_doubles_nothing(server, make, path):
    server.write("a", range(1, 21))
    drain(make())
    server.client().execute_command("XGROUP SETID", stream_of("a"), GROUP, "0")
    again = make()
    drain(again)
    assert numbers(path, "a") == [*range(1, 21)]
    assert pending(server, "a") == 0


def test_a_store_on_a_new_volume_reads_all_that_redis_still_has(server, make, tmp_path, capsys):
    server.write("a", range(1, 21))
    drain(make())
    drain(make(file=tmp_path / "new.db"))
    assert numbers(tmp_path / "new.db", "a") == [*range(1, 21)]
    assert "emugpu:events:a is read again from 0-0 on; 100-20 was delivered last" in capsys.readouterr().err


def test_a_store_from_a_back_up_reads_what_it_lacks(server, make, path, tmp_path):
    server.write("a", range(1, 11))
    first = make()
    drain(first)
    first.close()
    (tmp_path / "old.db").write_bytes(path.read_bytes())
    server.write("a", range(11, 21))
    drain(make())
    drain(make(file=tmp_path / "old.db"))
    assert numbers(tmp_path / "old.db", "a") == [*range(1, 21)]


def test_a_write_that_fails_is_made_up_for_before_anything_newer(server, make, path, monkeypatch):
    server.write("a", range(1, 6))
    collector = make()
    full = sqlite3.OperationalError("database or disk is full")
    with monkeypatch.context() as patched:
        patched.setattr(ResultStore, "write", lambda *_: (_ for _ in ()).throw(full))
        with pytest.raises(sqlite3.OperationalError):
            collector.attempt(None)
    collector.failed(full)
    server.write("a", range(6, 11))
    assert collector.attempt(None) == 5
    assert numbers(path, "a") == [1, 2, 3, 4, 5]
    drain(collector)
    assert numbers(path, "a") == [*range(1, 11)]


def test_an_entry_that_is_no_event_holds_nothing_up(server, make, path, registry):
    server.write("a", [1, 2])
    server.client().execute_command("XADD", stream_of("a"), "100-3", "mine", "yes")
    server.write("b", [1])
    collector = make()
    drain(collector)
    server.client().execute_command("XADD", stream_of("a"), "100-4", "sequence", "four")
    drain(collector)
    assert (numbers(path, "a"), numbers(path, "b"), pending(server, "a")) == ([1, 2], [1], 0)
    assert registry.get_sample_value("emugpu_collector_unread_total") == 2


def test_an_entry_that_was_deleted_unread_shows_as_missing_steps(server, make, path, facts):
    """Redis 7 tells a new reader nothing of it (XAUTOCLAIM drops it), so it is seen where it matters."""
    server.write("a", range(1, 6))
    make()._opened()[1].read()
    server.client().execute_command("XDEL", stream_of("a"), "100-3")
    drain(make())
    with closing(ResultStore(path)) as store:
        store.note_job(facts(steps=5))
        assert store.job("job").steps_missing == 1
    assert (numbers(path, "a"), pending(server, "a")) == ([1, 2, 4, 5], 0)


def test_the_thread_outlives_trouble_and_says_it_once(server, path, registry, capsys):
    server.kill()
    collector = Collector(
        server.client(),
        "redis",
        lambda: ResultStore(path),
        CollectorMetrics(registry),
        wall_ns,
    )
    collector.start()
    wait_for(
        lambda: (
            (registry.get_sample_value("emugpu_collector_failures_total", {"reason": "manager-unavailable"}) or 0) > 1
        )
    )
    server.start()
    server.write("a", [1])
    wait_for(lambda: numbers(path, "a") == [1])
    wait_for(lambda: collector.problem == "")
    collector.stop()
    collector.stop()
    assert capsys.readouterr().err.count("events wait there or on their nodes") == 1


def test_a_store_that_can_not_be_opened_is_reported(server, make, tmp_path):
    collector = make(file=tmp_path / "missing" / "r.db")
    with pytest.raises(ClusterError, match="can't use this file as the operator's store"):
        collector.attempt(None)


def wait_for(happened, timeout_s=30.0):
    give_up = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < give_up, "it didn't happen in time"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("known", "given", "last", "start"),
    [
        (None, "0-0", "9-9", None),
        (None, "5-1", "9-9", "0-0"),
        ("5-1", "5-1", "9-9", None),
        ("5-1", "5-3", "9-9", "5-1"),
        ("5-3", "5-1", "9-9", None),
        ("9-9", "5-1", "5-1", "0-0"),
        ("9-9", "0-0", "5-1", None),
    ],
)
def test_where_the_group_goes_on(known, given, last, start):
    parsed = [None if text is None else EntryId.parse(text) for text in (known, given, last, start)]
    assert start_of(*parsed[:3]) == parsed[3]


def test_what_another_reader_took_away_is_read_all_the_same(server, make, path):
    """A process that was frozen when it lost its lease reads once more before it notices, and keeps what it read."""
    clock = [wall_ns()]
    collector = make(now_ns=lambda: clock[0])
    server.write("a", [1, 2])
    drain(collector)
    server.write("a", [3, 4])
    drain(make(path.with_name("other.db")))
    drain(collector)
    assert numbers(path, "a") == [1, 2]
    clock[0] += 31 * 10**9
    server.write("a", [5])
    drain(collector)
    assert numbers(path, "a") == [1, 2, 3, 4, 5]
