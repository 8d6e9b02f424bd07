"""Fixtures: a real Redis on a Unix socket, and an event log as the manager writes it."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from sharing_manager.grants.grant import Grant
from sharing_manager.persistence.event_log import ManagerEvent, SqliteEventLog
from sharing_manager.store import RedisStore, connect, progress_queries
from sharing_manager.store.entries import Entry, stream_of
from sharing_manager.store.outbox import Outbox

SCRIPT = shutil.which("redis-server") or "/usr/bin/redis-server"
ONCE = Retry(NoBackoff(), 0)
EPOCH_MS = 1_700_000_000_000


class RedisServer:
    """`start` it with options, `kill` it as a crash would, `stop` it; its files outlive all of that."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.socket = directory / "s"
        self.url = f"unix://{self.socket}"
        self._process: subprocess.Popen[bytes] | None = None
        self._clients: list[redis.Redis] = []

    def start(self, *options: str, persistent: bool = True, wait: bool = True) -> RedisServer:
        # Not everysec: behind a slow disk it holds back what it has confirmed for up to two seconds, which a kill loses.
        files = ["--appendonly", "yes", "--appendfsync", "always"] if persistent else ["--appendonly", "no"]
        place = ["--port", "0", "--unixsocket", str(self.socket), "--dir", str(self._directory), "--save", ""]
        with (self._directory / "log").open("ab") as output:
            self._process = subprocess.Popen([SCRIPT, *place, *files, *options], stdout=output, stderr=output)
        if wait:
            self._wait_until_it_answers()
        return self

    def _wait_until_it_answers(self) -> None:
        give_up = time.monotonic() + 30
        while True:
            with redis.Redis(unix_socket_path=str(self.socket), retry=ONCE) as client:
                try:
                    client.ping()
                    return
                except (redis.AuthenticationError, redis.ResponseError):
                    return  # it answers, only not to us
                except redis.RedisError:
                    assert time.monotonic() < give_up, (self._directory / "log").read_text()
                    time.sleep(0.01)

    def client(self, **options: Any) -> redis.Redis:
        client = redis.Redis(
            unix_socket_path=str(self.socket), decode_responses=True, protocol=2, retry=ONCE, **options
        )
        self._clients.append(client)
        return client

    def stream(self, node: str) -> list[tuple[str, Entry]]:
        """All entries of a node's stream."""
        found: Any = self.client().xrange(stream_of(node))
        return [(entry_id, Entry.from_fields(entry_id, given)) for entry_id, given in found]

    def progress(self, job_key: str) -> int | None:
        score: Any = self.client().zscore("emugpu:progress", job_key)
        return None if score is None else int(score)

    def pause(self) -> None:
        """It hangs: connections stay, nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self.socket.unlink(missing_ok=True)

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self.kill()


class Log:
    """A node's event log, written as the manager writes it."""

    def __init__(self, path: Path, node: str) -> None:
        self.path, self.node = path, node
        self._log = SqliteEventLog(path)
        self._reached: dict[str, int] = {}
        self.recorded: list[Entry] = []

    def record(self, kind: str, job: str, steps_done: int | None = None, detail: str = "") -> Entry:
        """The next range of this job."""
        key, start = f"uid-{job}/0", self._reached.get(job, 0)
        done = start if steps_done is None else steps_done
        self._reached[job] = done
        event = ManagerEvent(
            5, kind, f"team/{key}", done, start, detail, wall_ns=7_000_000, namespace="team", pod=f"pod-{job}"
        )
        grant = Grant(digest=f"digest-{job}", job_id=f"team/{key}", devices=("GPU-1",), steps_done=done, floor_ns=0)
        number = self._log.record(event, grant).sequence
        self.recorded.append(
            Entry(self.node, number, 5, 7_000_000, kind, key, key, start, done, detail, "team", f"pod-{job}")
        )
        return self.recorded[-1]

    def run(self, job: str, steps: int) -> None:
        """A job that is granted devices, runs `steps` steps, and writes its progress at each."""
        self.record("granted", job)
        for step in range(1, steps + 1):
            self.record("progress", job, step)

    def forget_after(self, sequence: int) -> None:
        """A power cut: the newest events are gone, and their numbers are given out again."""
        with contextlib.closing(sqlite3.connect(self.path)) as db, db:
            db.execute("delete from events where sequence > ?", (sequence,))
            db.execute("update sqlite_sequence set seq = ? where name = 'events'", (sequence,))
            db.execute("update outbox set sent = min(sent, :last), shipped = min(shipped, :last)", {"last": sequence})
        self.recorded = [entry for entry in self.recorded if entry.sequence <= sequence]

    def sequences(self) -> list[int]:
        return [event.sequence for event in self._log.after(0)]

    def outbox(self, now_ms: int = EPOCH_MS) -> Outbox:
        return Outbox(self.path, self.node, lambda: now_ms)

    def close(self) -> None:
        self._log.close()


class PollerThread:
    """`call_soon` as the manager's poller has it: callbacks run in one thread, which tests can name."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._calls: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None], /) -> None:
        with self._wake:
            self._calls.append(callback)
            self._wake.notify()

    def run_until(self, happened: Callable[[], object], timeout_s: float = 30.0) -> None:
        give_up = time.monotonic() + timeout_s
        while not happened():
            with self._wake:
                if not self._calls:
                    self._wake.wait(0.01)
                calls, self._calls = self._calls, []
            for call in calls:
                call()
            assert time.monotonic() < give_up, "it didn't happen in time"


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    if not Path(SCRIPT).exists():
        pytest.skip("no redis-server is installed (Debian: apt install redis-server)")
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="emugpu-redis-")))
        server = RedisServer(directory)
        stack.callback(server.close)
        yield server


@pytest.fixture
def make_log(tmp_path: Path) -> Iterator[Callable[..., Log]]:
    with contextlib.ExitStack() as stack:

        def make(node: str = "n1", name: str | None = None) -> Log:
            log = Log(tmp_path / f"{name or node}.db", node)
            stack.callback(log.close)
            return log

        yield make


@pytest.fixture
def log(make_log: Callable[..., Log]) -> Log:
    return make_log()


@pytest.fixture
def poller() -> PollerThread:
    return PollerThread()


@pytest.fixture
def make_store(poller: PollerThread, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., RedisStore]]:
    """`make_store(log, url)`: a store that reports into `store.lines` and is stopped at the end; it believes a Redis that has
    just started, unless `settle_s` is given."""
    with contextlib.ExitStack() as stack:

        def make(
            log: Log, url: str, outbox_bytes: int = 10**8, stream_length: int = 60_000, settle_s: float = 0.0
        ) -> RedisStore:
            monkeypatch.setattr(progress_queries, "SETTLE_S", settle_s)
            settings = SimpleNamespace(
                node=log.node,
                redis_url=url,
                outbox_bytes=outbox_bytes,
                stream_length=stream_length,
                state_file=log.path,
            )
            lines: list[str] = []
            store = connect(settings, None, poller, report=lines.append)  # type: ignore[arg-type]
            store.lines = lines  # type: ignore[attr-defined]
            stack.callback(store.stop, 0.0)
            return store

        yield make


@pytest.fixture
def eventually() -> Callable[..., None]:
    def wait(happened: Callable[[], object], timeout_s: float = 30.0) -> None:
        give_up = time.monotonic() + timeout_s
        while not happened():
            assert time.monotonic() < give_up, "it didn't happen in time"
            time.sleep(0.005)

    return wait
