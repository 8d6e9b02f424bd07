"""Events as nodes tell them, and a real Redis of the test's own on a Unix socket."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from operators.results.facts_and_result import JobFacts
from operators.results.store import ResultStore
from sharing_manager.store.client import client_of
from sharing_manager.store.entries import Entry
from sharing_manager.store.redis_link import RedisLink
from tests.support.event_streams import EventStream

S = 1_000_000_000
T0 = 1_700_000_000 * S
SERVER = shutil.which("redis-server") or "/usr/bin/redis-server"


@pytest.fixture
def teller():
    return EventStream


@pytest.fixture
def facts() -> Callable[..., JobFacts]:
    return lambda uid="job", **more: JobFacts(uid, "team", "train", T0, **more)


@pytest.fixture
def store(tmp_path) -> Iterator[ResultStore]:
    opened = ResultStore(tmp_path / "results.db")
    yield opened
    opened.close()


class Server:
    """`start` it, `kill` it as a crash would; its files outlive that."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._process = directory, None
        self.url = f"unix://{directory}/s"
        self._links: dict[str, RedisLink] = {}
        self._clients = []

    def start(self) -> Server:
        place = ["--port", "0", "--unixsocket", f"{self._directory}/s", "--dir", str(self._directory), "--save", ""]
        options = ["--appendonly", "yes", "--appendfsync", "always", "--logfile", f"{self._directory}/log"]
        self._process = subprocess.Popen([SERVER, *place, *options])
        give_up = time.monotonic() + 30
        while True:
            with contextlib.suppress(redis.RedisError):
                self.client().execute_command("PING")
                return self
            assert time.monotonic() < give_up, (self._directory / "log").read_text()
            time.sleep(0.01)

    def client(self):
        self._clients.append(client_of(self.url, "URL"))
        return self._clients[-1]

    def write(self, node, numbers, epoch=100, **more) -> None:
        """Entries as a node's shipper appends them."""
        link = self._links.pop(node, None) or RedisLink(self.url, "URL", node)
        link.open()
        told = {"kind": "progress", "job_id": "job/0", "job_key": "job/0", **more}
        link.append(epoch, [Entry(node, n, 1, T0 + n, from_step=n - 1, steps_done=n, **told) for n in numbers])
        link.close()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        (self._directory / "s").unlink(missing_ok=True)

    def empty(self) -> None:
        """It comes back with nothing, as from an empty volume."""
        self.kill()
        shutil.rmtree(self._directory / "appendonlydir", ignore_errors=True)
        self.start()

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self.kill()


@pytest.fixture
def server() -> Iterator[Server]:
    if not Path(SERVER).exists():
        pytest.skip("no redis-server is installed (Debian: apt install redis-server)")
    with contextlib.ExitStack() as stack:
        started = Server(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="emugpu-results-"))))
        stack.callback(started.close)
        yield started.start()
