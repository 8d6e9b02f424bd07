"""The event log's file: upgrades from older versions, no token in it, and a bounded size."""

import sqlite3

import pytest

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.node.grant_files import token_digest
from sharing_manager.grants.grant import Grant, GrantState
from sharing_manager.grants.identity import PodIdentity
from sharing_manager.persistence import event_log
from sharing_manager.persistence.event_log import ManagerEvent, SqliteEventLog

VERSION_1 = """
create table events (sequence integer primary key autoincrement, at_ns integer not null, kind text not null,
  job_id text not null, from_step integer not null, steps_done integer not null, detail text not null);
create table grants (number integer primary key autoincrement, token text not null unique,
  job_id text not null, devices text not null, steps_done integer not null, floor_ns integer not null,
  state text not null, stopping integer not null);
insert into events values (1, 5, 'granted', 'a', 0, 0, ''), (2, 6, 'attached', 'a', 0, 0, ''), (3, 7, 'progress', 'a', 0, 4, '');
insert into grants values (1, 'old token', 'a', '["GPU-x"]', 4, 99, 'attached', 1);
"""


@pytest.fixture
def open_log(tmp_path):
    logs = []

    def open_():
        logs.append(SqliteEventLog(tmp_path / "manager.db"))
        return logs[-1]

    yield open_
    for log in logs:
        log.close()


def grant(number, **more):
    return Grant(token_digest(str(number)), f"job {number}", ("G",), 0, 0, **more)


def test_a_log_of_the_first_version_goes_on_without_its_tokens(tmp_path, make_node, uuids):
    db = sqlite3.connect(tmp_path / "old.db")
    db.executescript(VERSION_1.replace("GPU-x", uuids[0]))
    db.close()
    node = make_node("old.db")
    held = node.manager.attach("old token", "a", 4, 0)
    assert (held.state, held.stopping, held.devices) == (GrantState.ATTACHED, True, (uuids[0],))
    assert node.manager.steps_done("a") == 4
    assert [(e.sequence, e.kind, e.wall_ns) for e in node.log.after(1)] == [(2, "attached", 0), (3, "progress", 0)]
    assert node.log.progress("a") == 4
    token = node.token(node.manager.grant("a", uuids[:1], 4))  # asked again: its owner has lost the old one
    assert token == node.token(node.manager.grant("a", uuids[:1], 4)) != "old token"
    assert node.manager.attach(token, "a", 4, 0) is held
    node.manager.flush_progress()
    node.log.close()
    node.crash()
    assert node.manager.attach(token, "a", 4, 0).live
    content = b"".join(p.read_bytes() for p in tmp_path.iterdir() if p.is_file())
    assert token.encode() not in content


def test_job_keys_of_the_second_version_get_the_namespace_of_their_pods(open_log, tmp_path):
    """Of progress alone nobody knows whose it was: a pod of any namespace may have claimed that job's uid."""
    log = open_log()
    for number, (namespace, uid, key, steps) in enumerate(
        [("lab", "a", "job/0", 40), ("evil", "b", "job/0", 900), ("lab", "c", "c", 7), ("lab", "d", "gone/0", 5)]
    ):
        held = grant(number, minted_ns=7)
        held.bind(key, PodIdentity(uid, "id", namespace, f"pod-{uid}", "main", key))
        held.steps_done = steps
        log.record(ManagerEvent(1, "progress", key, steps, namespace=namespace, pod=f"pod-{uid}"), held)
    log.forget([token_digest("3")])
    db = sqlite3.connect(tmp_path / "manager.db")
    db.executescript("insert into progress (job_id, steps_done) values ('nobody/0', 9); pragma user_version = 2")
    db.close()
    log = open_log()
    assert [(g.job_id, g.pod.job_key) for g in log.grants()] == [(key, key) for key in ("lab/job/0", "evil/job/0", "c")]
    assert [event.job_id for event in log.after(0)] == ["lab/job/0", "evil/job/0", "c", "lab/gone/0"]
    keys = ("lab/job/0", "evil/job/0", "c", "lab/gone/0", "job/0", "nobody/0")
    assert [log.progress(key) for key in keys] == [40, 900, 7, 5, None, None]
    assert next(event.job_id for event in open_log().after(0)) == "lab/job/0"  # a second start changes nothing


def test_a_log_of_a_later_version_is_refused(open_log, tmp_path):
    open_log()
    db = sqlite3.connect(tmp_path / "manager.db")
    db.execute("pragma user_version = 9")
    db.close()
    with pytest.raises(ClusterError, match=r"a newer emugpu wrote it \(version 9, not 3\); move it away"):
        open_log()


def test_a_grant_comes_back_as_it_was(open_log):
    pod = PodIdentity("uid", "id", "ns", "p", "main", "key/0", True)
    written = grant(1, minted_ns=7, resource="r")
    written.bind("key/0", pod)
    written.state, written.steps_done, written.floor_ns = GrantState.FINISHED, 3, 44
    log = open_log()
    log.record(ManagerEvent(1, "finished", "key/0", 3, wall_ns=8, namespace="ns", pod="p"), written)
    (read,) = open_log().grants()
    for name in (
        "digest",
        "job_id",
        "devices",
        "steps_done",
        "floor_ns",
        "state",
        "minted_ns",
        "resource",
        "pod",
        "holder",
    ):
        assert getattr(read, name) == getattr(written, name), name
    (event,) = log.after(0)
    assert (event.wall_ns, event.namespace, event.pod) == (8, "ns", "p")


def test_forgetting(open_log):
    log = open_log()
    for number in range(10):
        log.record(ManagerEvent(number, "x", f"job {number}", number), grant(number))
    log.forget([token_digest(str(number)) for number in range(9)])
    log.forget_events(3)
    assert [g.job_id for g in log.grants()] == ["job 9"]
    assert [event.sequence for event in log.after(0)] == [8, 9, 10]
    assert (log.progress("job 3"), log.progress("nobody")) == (3, None)


def test_progress_only_grows_and_the_jobs_that_are_here_are_not_forgotten(open_log, monkeypatch):
    monkeypatch.setattr(event_log, "MAX_JOBS", 5)
    log = open_log()
    log.record(ManagerEvent(0, "x", "job 0", 9), grant(0, state=GrantState.ATTACHED))
    log.record(ManagerEvent(0, "x", "job 0", 4), grant(0, state=GrantState.ATTACHED))
    for number in range(1, 20):
        log.record(ManagerEvent(number, "x", f"job {number}", 1), grant(number, state=GrantState.FAILED))
    known = [number for number in range(20) if log.progress(f"job {number}") is not None]
    assert known == [0, 15, 16, 17, 18, 19]
    assert log.progress("job 0") == 9


def test_the_key_is_the_owners_and_the_same_every_time(open_log, tmp_path):
    secret = open_log().secret
    assert len(secret) == 32
    assert open_log().secret == secret
    assert (tmp_path / "manager.db.key").stat().st_mode & 0o777 == 0o600


def test_a_key_that_cant_be_read(tmp_path):
    (tmp_path / "manager.db.key").mkdir()
    with pytest.raises(ClusterError, match=r"manager\.db\.key: can't use this file as event log's key: Is a directory"):
        SqliteEventLog(tmp_path / "manager.db")
