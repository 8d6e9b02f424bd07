"""Messages about an unusable event log: the file, SQLite's error, and the matching fix."""

import sqlite3

import pytest

from sharing_manager import __main__ as program
from sharing_manager.__main__ import log_error, main


def full(path):
    db = sqlite3.connect(path)
    db.execute("create table t (x)")
    db.execute("pragma max_page_count = 2")
    return db, "insert into t select hex(zeroblob(100000))"


def not_a_database(path):
    path.write_bytes(b"x" * 5_000)
    return sqlite3.connect(path), "select * from sqlite_master"


def read_only(path):
    sqlite3.connect(path).close()
    path.write_bytes(b"")
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True), "create table t (x)"


def busy(path):
    db = sqlite3.connect(path, timeout=0)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin exclusive")
    busy.others.append(other)
    return db, "create table t (x)"


busy.others = []


def other(path):
    return sqlite3.connect(path), "select nonsense"


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (full, "database or disk is full; make room on its disk and start again"),
        (not_a_database, "file is not a database; it is damaged: move it away to start afresh"),
        (
            read_only,
            "attempt to write a readonly database; give this process write access to the file and its directory",
        ),
        (busy, "database is locked; another program has it open: end that"),
        (other, "no such column: nonsense; start again; if it says so again, move the file away to start afresh"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_trouble_has_its_own_advice(tmp_path, fault, problem):
    path = tmp_path / "manager.db"
    db, statement = fault(path)
    with pytest.raises(sqlite3.Error) as caught:
        db.execute(statement)
    db.close()
    while busy.others:
        busy.others.pop().close()
    assert str(log_error(caught.value, path)) == f"{path}: the event log can't be used: {problem}"


def test_the_program_ends_with_that_line(tmp_path, monkeypatch, capsys):
    class Daemon:
        def __init__(self, settings):
            pass

        def run(self):
            raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(program, "Daemon", Daemon)
    for name, value in {"NODE": "n1", "INVENTORY": "i", "SOCKET_DIR": "s", "STATE_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(f"EMUGPU_MANAGER_{name}", value)
    assert main([]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"sharing_manager: {tmp_path / 'manager.db'}: the event log can't be used: disk I/O error; ")
    assert said.count("\n") == 1
