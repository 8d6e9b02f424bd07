"""Failures of Redis: one line that says what to do, and shipping continues once the cause is removed."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest
import redis

from emulator_runtime.domain.errors import ClusterError, InputError, ManagerUnavailableError
from sharing_manager.store.client import client_of, place_of
from sharing_manager.store.entries import stream_of
from sharing_manager.store.redis_errors import StoreUnavailableError, StreamMovedError, explain, translated
from sharing_manager.store.redis_link import risky_settings


@contextlib.contextmanager
def answering(tmp_path, reply):
    """A server that gives every connection this one answer."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(0.05)
        stopping = threading.Event()

        def serve():
            while not stopping.is_set():
                with contextlib.suppress(OSError):
                    peer, _ = listener.accept()
                    with peer:
                        peer.settimeout(0.5)
                        while peer.recv(65536):
                            peer.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"unix://{path}"
        finally:
            stopping.set()
            thread.join()


def test_a_wrong_password_and_none_at_all_are_said_once_and_put_right_without_a_restart(
    redis_server, log, make_store, eventually
):
    redis_server.start("--requirepass", "right")
    log.run("a", 3)
    store = make_store(log, f"{redis_server.url}?password=wrong")
    store.start()
    eventually(lambda: store.status().problem == "auth")
    time.sleep(0.3)
    assert [line.count("refuses the user or password") for line in store.lines] == [1]
    assert "wrong" not in store.lines[0]
    admin = redis_server.client(password="right")
    admin.config_set("requirepass", "wrong")
    eventually(lambda: admin.xlen(stream_of("n1")) == 4)
    store.stop()
    store = make_store(log, redis_server.url)
    store.start()
    eventually(lambda: store.status().problem == "auth")
    assert "wants a password" in store.lines[0]


def test_a_replica_is_no_place_to_write_until_it_is_made_the_primary(redis_server, log, make_store, eventually):
    """What a fail-over looks like to a manager whose connection stays."""
    server = redis_server.start()
    log.run("a", 3)
    store = make_store(log, server.url)
    store.start()
    eventually(lambda: len(server.stream("n1")) == 4)
    server.client().replicaof("127.0.0.1", "1")
    log.run("b", 3)
    eventually(lambda: store.status().problem == "read-only")
    assert "read-only replica" in store.lines[-1]
    server.client().replicaof("NO", "ONE")
    eventually(lambda: [entry for _, entry in server.stream("n1")] == log.recorded)
    assert "connected again; 4 events to ship" in store.lines[-1]


def test_a_redis_without_memory_gets_the_events_later(redis_server, log, make_store, eventually):
    server = redis_server.start("--maxmemory", "100kb", "--maxmemory-policy", "noeviction")
    log.run("a", 3)
    store = make_store(log, server.url)
    store.start()
    eventually(lambda: store.status().problem == "memory")
    assert "raise it, or lower EMUGPU_MANAGER_STREAM_LENGTH" in store.lines[0]
    server.client().config_set("maxmemory", "0")
    eventually(lambda: [entry for _, entry in server.stream("n1")] == log.recorded)
    assert server.progress("team/uid-a/0") == 3


@pytest.mark.parametrize("key", ["emugpu:events:n1", "emugpu:progress", "emugpu:nodes"])
def test_a_key_that_holds_something_else_is_left_alone_and_named(redis_server, log, make_store, eventually, key):
    server = redis_server.start()
    server.client().set(key, "mine")
    log.run("a", 3)
    store = make_store(log, server.url)
    store.start()
    eventually(lambda: store.status().problem == "type")
    assert "emugpu:* holds something else" in store.lines[0]
    assert server.client().get(key) == "mine"
    server.client().delete(key)
    eventually(lambda: server.progress("team/uid-a/0") == 3)
    eventually(lambda: [entry for _, entry in server.stream("n1")] == log.recorded)


def test_a_redis_that_hangs_is_given_up_after_the_timeout(redis_server, log, make_store, eventually, in_time):
    server = redis_server.start()
    store = make_store(log, server.url)
    store.start()
    log.run("a", 3)
    eventually(lambda: len(server.stream("n1")) == 4)
    server.pause()
    log.run("b", 3)
    began = time.monotonic()
    eventually(lambda: store.status().problem == "timeout")
    assert in_time(most_s=5, since_s=began)
    assert "doesn't answer in time" in store.lines[-1]


def test_settings_with_which_redis_forgets_are_said_once(redis_server, log, make_store, eventually):
    server = redis_server.start("--maxmemory-policy", "allkeys-lru", persistent=False)
    store = make_store(log, server.url)
    store.start()
    eventually(lambda: store.status().connected)
    (line,) = store.lines
    assert "maxmemory-policy allkeys-lru" in line
    assert "set appendonly yes" in line


def test_a_user_who_may_not_ask_for_the_settings_is_enough(redis_server, log, make_store, eventually):
    server = redis_server.start()
    server.client().execute_command("ACL SETUSER u on >p ~emugpu:* +@write +@read +@stream +@transaction -info")
    log.run("a", 3)
    store = make_store(log, f"unix://u@{server.socket}?password=p")
    store.start()
    eventually(lambda: len(server.stream("n1")) == 4)
    server.client().execute_command("ACL SETUSER u -xadd")
    log.record("finished", "a")
    eventually(lambda: store.status().problem == "permission")
    assert "may not run this command" in store.lines[-1]


@pytest.mark.parametrize(
    ("reply", "problem", "words"),
    [
        (b"-LOADING Redis is loading the dataset in memory\r\n", "loading", "still reading its files"),
        (b"-MISCONF Redis is configured to save RDB snapshots\r\n", "disk", "look into its log"),
        (b"-MOVED 3999 127.0.0.1:6381\r\n", "cluster", "use one primary with replicas"),
        (b"-CLUSTERDOWN Hash slot not served\r\n", "cluster", "use one primary with replicas"),
        (b"-MASTERDOWN Link with MASTER is down\r\n", "read-only", "lost its primary"),
        (b"-NOREPLICAS Not enough good replicas to write.\r\n", "replicas", "wait for them"),
        (b"-ERR unknown command 'SADD'\r\n", "old", "Redis 6.2 or later"),
        (b"-STRANGE thing\r\n", "STRANGE thing", "it answers 'STRANGE thing'"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", None, "it answers"),
    ],
)
def test_answers_of_a_redis_that_is_not_well(tmp_path, log, make_store, eventually, reply, problem, words):
    with answering(tmp_path, reply) as url:
        store = make_store(log, url)
        store.start()
        eventually(lambda: store.lines)
        store.stop(0.0)
    assert words in store.lines[0]
    assert "\n" not in store.lines[0]
    assert problem is None or store.status().problem == problem


def test_translation_keeps_the_cause_and_knows_the_refused_id():
    with pytest.raises(StoreUnavailableError, match="place: it can't be reached") as caught, translated("place"):
        raise redis.ConnectionError("refused")
    assert isinstance(caught.value.__cause__, redis.ConnectionError)
    assert isinstance(caught.value, ManagerUnavailableError)
    assert caught.value.retry_helps
    text = "The ID specified in XADD is equal or smaller than the target stream top item"
    with pytest.raises(StreamMovedError), translated("place"):
        raise redis.ResponseError(text)
    assert explain("p", TimeoutError()).kind == "timeout"
    with pytest.raises(StoreUnavailableError, match="read-only replica"):
        risky_settings("p", {"role": "slave"})


def test_a_url_is_checked_at_the_start_and_shown_without_its_secrets(log, make_store):
    for url in ("http://x", "redis://host:port/0", "redis://host?no_such_option=1", ""):
        with pytest.raises(InputError, match=r"EMUGPU_MANAGER_REDIS_URL: .* is not a Redis URL"):
            make_store(log, url)
    assert place_of("rediss://user:secret@host:6380/2?ssl_ca_certs=/x") == "rediss://host:6380/2"
    assert client_of("rediss://:p@host:6380/2", "V").connection_pool.connection_class is redis.SSLConnection


def test_a_file_that_is_no_event_log_is_refused_at_the_start(tmp_path, make_store):
    class Here:
        node = "n1"
        path = tmp_path / "manager.db"

    Here.path.write_text("this is not a database, but long enough to look like one" * 99)
    with pytest.raises(ClusterError, match="can't use this file as outbox"):
        make_store(Here, "unix:///nowhere/s")
    Here.path = tmp_path / "empty.db"
    with pytest.raises(ClusterError, match=r"no such table: events.*the sharing manager must have made it"):
        make_store(Here, "unix:///nowhere/s")
