"""The event log's file: no token in it, a bounded size, and no file of another version."""

import sqlite3

import pytest

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.node.grant_files import token_digest
from sharing_manager.grants.grant import Grant, GrantState
from sharing_manager.grants.identity import PodIdentity
from sharing_manager.persistence import event_log
from sharing_manager.persistence.event_log import ManagerEvent, SqliteEventLog


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


def test_the_file_has_no_token(tmp_path, make_node, uuids):
    node = make_node("log.db")
    token = node.token(node.manager.grant("a", uuids[:1], 4))
    node.manager.attach(token, "a", 4, 0)
    node.manager.flush_progress()
    node.log.close()
    content = b"".join(p.read_bytes() for p in tmp_path.iterdir() if p.is_file())
    assert token_digest(token).encode() in content
    assert token.encode() not in content


@pytest.mark.parametrize("version", [2, 9])
def test_a_log_of_another_version_is_refused(open_log, tmp_path, version):
    open_log()
    db = sqlite3.connect(tmp_path / "manager.db")
    db.execute(f"pragma user_version = {version}")
    db.close()
    with pytest.raises(ClusterError, match=rf"another emugpu wrote it \(version {version}, not 4\); move it away"):
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
