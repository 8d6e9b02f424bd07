"""What it costs to have events in Redis too: events per second and lag, ours beside a plain redis-py XADD loop.

Peers: one XADD per event, as one would write it first; and XADDs in transactions of our batch size. Neither survives a
Redis that is away, and both make the manager's thread wait. Ours is fed by the manager's own event log; its lag is from
the record to a reader in another process. `record` is what the recording thread pays for an event, p50 and p99.
Redis is the benchmark's own, on a Unix socket, with appendonly yes and appendfsync everysec.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import redis

from emulator_runtime.ipc.poller import Poller
from sharing_manager.grants.grant import Grant
from sharing_manager.persistence.event_log import ManagerEvent, SqliteEventLog
from sharing_manager.store import connect
from sharing_manager.store.entries import Entry, stream_of
from sharing_manager.store.shipper import BATCH_ROWS

BACKLOG = 20_000
RATE_PER_S, SECONDS = 500, 6
PLAIN, BATCHED, OURS = "plain XADD loop", f"XADD, MULTI of {BATCH_ROWS}", "ours"


def main(argv: list[str]) -> int:
    """Print both tables; 1 where no redis-server is installed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks event_shipping", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the events")
    options = parser.parse_args(argv)
    if shutil.which("redis-server") is None:
        print("no redis-server is installed", file=sys.stderr)
        return 1
    share = 10 if options.quick else 1
    with redis_server() as url:
        speeds = {name: throughput(url, name, BACKLOG // share) for name in (PLAIN, BATCHED, OURS)}
        for name, speed in speeds.items():
            print(f"{name:24}{speed:10.0f} events/s  {speed / speeds[PLAIN]:6.2f} x plain", flush=True)
        print(f"{RATE_PER_S} events/s{'':12}{'record p50':>11}{'p99 us':>8}{'lag p50':>10}{'p99 ms':>8}")
        for name in (PLAIN, OURS):
            cost, lags = lag(url, name, RATE_PER_S * SECONDS // share)
            figures = f"{rank(cost, 0.5) / 1e3:11.0f}{rank(cost, 0.99) / 1e3:8.0f}"
            print(f"{name:24}{figures}{rank(lags, 0.5) / 1e6:10.1f}{rank(lags, 0.99) / 1e6:8.1f}", flush=True)
    return 0


def rank(values: list[int], share: float) -> int:
    """The quantile of `values`."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


# ---- events per second


def throughput(url: str, name: str, count: int) -> float:
    """Events per second, from a backlog of `count`."""
    client = fresh_client(url)
    if name == OURS:
        return our_throughput(url, client, count)
    entries = [entry(number) for number in range(1, count + 1)]
    start = time.perf_counter()
    if name == PLAIN:
        for each in entries:
            client.execute_command("XADD", stream_of("n1"), f"1-{each.sequence}", *each.to_fields())
    else:
        for first in range(0, count, BATCH_ROWS):
            pipeline = client.pipeline(transaction=True)
            for each in entries[first : first + BATCH_ROWS]:
                pipeline.execute_command("XADD", stream_of("n1"), f"1-{each.sequence}", *each.to_fields())
            pipeline.execute()
    took = time.perf_counter() - start
    client.close()
    return count / took


def our_throughput(url: str, client: Any, count: int) -> float:
    """From the start of the store until Redis has the last event."""
    with node(url) as (record, store):
        for number in range(1, count + 1):
            record(number)
        start = time.perf_counter()
        store.start()
        while client.xlen(stream_of("n1")) < count:
            time.sleep(0.005)
        took = time.perf_counter() - start
    client.close()
    return count / took


# ---- lag


def lag(url: str, name: str, count: int) -> tuple[list[int], list[int]]:
    """What recording costs its thread, and how long until a reader has the event; nanoseconds each."""
    client = fresh_client(url)
    command = [sys.executable, "-m", "tests.benchmarks.event_shipping", url, str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()  # it is ready
        if name == OURS:
            with node(url) as (record, store):
                store.start()
                cost = at_a_rate(record, count)
                lags = json.loads(reader.stdout.read())
        else:
            cost = at_a_rate(lambda number: add(client, number), count)
            lags = json.loads(reader.stdout.read())
    client.close()
    return cost, lags


def at_a_rate(record: Callable[[int], None], count: int) -> list[int]:
    """Call `record` RATE_PER_S times a second; how long each call took."""
    took, due = [], time.monotonic_ns()
    for number in range(1, count + 1):
        due += 1_000_000_000 // RATE_PER_S
        time.sleep(max(0, due - time.monotonic_ns()) / 1e9)
        before = time.perf_counter_ns()
        record(number)
        took.append(time.perf_counter_ns() - before)
    return took


def add(client: Any, number: int) -> None:
    """The peer's way to record."""
    client.execute_command("XADD", stream_of("n1"), f"1-{number}", *entry(number).to_fields())


def read(url: str, count: int) -> None:
    """The reader's process: lags of `count` events, as JSON."""
    client: Any = redis.Redis.from_url(url, decode_responses=True, protocol=2)
    print("ready", flush=True)
    last, lags = "0-0", []
    while len(lags) < count:
        for _, entries in client.xread({stream_of("n1"): last}, block=1000) or []:
            now = time.time_ns()
            lags += [now - int(given["wall_ns"]) for _, given in entries]
            last = entries[-1][0]
    print(json.dumps(lags))


# ---- what they share


def entry(number: int) -> Entry:
    """A typical event."""
    key = "0f2c1a9e-6c1b-4d0f-9a57-2f1f6f1f0a11/0"
    return Entry(
        "n1", number, number, time.time_ns(), "progress", key, key, number - 1, number, "", "team", "train-0-x"
    )


@contextmanager
def node(url: str) -> Iterator[tuple[Callable[[int], None], Any]]:
    """An event log, how to record in it, and its store."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "manager.db"
        log = SqliteEventLog(path)
        settings = SimpleNamespace(node="n1", redis_url=url, outbox_bytes=10**8, stream_length=60_000, state_file=path)
        store = connect(settings, log, Poller())

        def record(number: int) -> None:
            typical = entry(number)
            grant = Grant(digest="d", job_id=typical.job_id, devices=("GPU-1",), steps_done=number, floor_ns=0)
            event = ManagerEvent(number, "progress", typical.job_id, number, number - 1, wall_ns=typical.wall_ns)
            log.record(event, grant)
            store.notify()

        try:
            yield record, store
        finally:
            store.stop()
            log.close()


def fresh_client(url: str) -> Any:
    """A client of an empty Redis."""
    client: Any = redis.Redis.from_url(url, decode_responses=True, protocol=2)
    client.flushall()
    return client


@contextmanager
def redis_server() -> Iterator[str]:
    """A Redis of our own."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "s"
        options = ["--port", "0", "--unixsocket", str(path), "--dir", directory, "--save", "", "--appendonly", "yes"]
        process = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
        try:
            while not path.exists():
                time.sleep(0.01)
            yield f"unix://{path}"
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    read(sys.argv[1], int(sys.argv[2]))
