"""The table of intervals in a file: they survive the process, but not the host's boot."""

import hashlib
import os
import struct
import subprocess
import sys

import pytest

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.domain.lease import Lease
from sharing_manager.persistence.interval_table import IntervalFile, MemoryIntervals


def digest(number):
    return hashlib.sha256(str(number).encode()).hexdigest()


@pytest.fixture
def open_table(tmp_path):
    tables = []

    def open_(epoch="boot 1"):
        tables.append(IntervalFile(tmp_path / "leases", epoch))
        return tables[-1]

    yield open_
    for table in tables:
        table.close()


@pytest.mark.parametrize("make", ["file", "memory"])
def test_the_last_lease_of_each(open_table, make):
    table = open_table() if make == "file" else MemoryIntervals()
    for step in range(3):
        table.record(digest(1), step, Lease(step * 10, step * 10 + 5))
    table.record(digest(2), -1, Lease(7, 9))
    assert table.intervals() == {digest(1): (2, Lease(20, 25)), digest(2): (-1, Lease(7, 9))}
    for _ in range(2):
        table.forget(digest(1))
    assert table.intervals() == {digest(2): (-1, Lease(7, 9))}


def test_it_is_there_after_a_restart_and_entries_are_used_again(open_table):
    first = open_table()
    assert not first.new_epoch
    for number in range(300):  # more than there is room for at first
        first.record(digest(number), number, Lease(number, number + 1))
    for number in range(0, 300, 2):
        first.forget(digest(number))
    second = open_table()
    assert not second.new_epoch
    assert second.intervals() == {digest(n): (n, Lease(n, n + 1)) for n in range(1, 300, 2)}
    size = second._path.stat().st_size
    for number in range(1000, 1150):
        second.record(digest(number), 0, Lease(1, 2))
    assert second._path.stat().st_size == size
    assert len(open_table().intervals()) == 300


def test_after_a_kill(open_table, tmp_path):
    code = (
        "import os, sys; from pathlib import Path; from emulator_runtime.domain.lease import Lease;"
        "from sharing_manager.persistence.interval_table import IntervalFile; table = IntervalFile(Path(sys.argv[1]), 'boot 1');"
        "table.record('ab' * 32, 5, Lease(1, 2)); os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path / "leases")], check=False)
    assert killed.returncode == -9
    assert open_table().intervals() == {"ab" * 32: (5, Lease(1, 2))}


def test_times_of_another_boot_are_worth_nothing(open_table):
    open_table().record(digest(1), 1, Lease(1, 2))
    second = open_table("boot 2")
    assert second.new_epoch
    assert second.intervals() == {}
    assert not open_table("boot 2").new_epoch


@pytest.mark.parametrize("stores", [1, 2, 7])
def test_a_store_that_was_cut_short_leaves_the_lease_before_it(open_table, stores):
    """Whichever byte of the newer record is wrong."""
    table, other = open_table(), (digest(2), (8, Lease(8, 9)))
    for step in range(stores):
        table.record(digest(1), step, Lease(step, step + 1))
    table.record(other[0], *other[1])
    newest = table._entries[digest(1)].newest
    for position in range(newest, newest + 64):
        table._memory[position] ^= 0x10
        restored = open_table()
        before = {} if stores == 1 else {digest(1): (stores - 2, Lease(stores - 2, stores - 1))}
        assert restored.intervals() == dict([other]) | before
        table._memory[position] ^= 0x10
    assert open_table().intervals()[digest(1)] == (stores - 1, Lease(stores - 1, stores))


@pytest.mark.parametrize("written", range(64))
def test_the_next_store_replaces_the_one_that_was_cut_short(open_table, written):
    table = open_table()
    for step in range(2):
        table.record(digest(1), step, Lease(step, step + 1))
    entry = table._entries[digest(1)]
    table._memory[entry.newest : entry.newest + written] = b"\xff" * written
    restored = open_table()
    assert restored.intervals()[digest(1)][0] == (1 if written == 0 else 0)
    restored.record(digest(1), 5, Lease(5, 6))
    assert (restored.intervals(), open_table().intervals()) == ({digest(1): (5, Lease(5, 6))},) * 2


@pytest.mark.parametrize("cleared", range(129))
def test_a_lease_that_is_being_forgotten_is_the_last_one_or_none(open_table, cleared):
    """`forget` was interrupted after so many bytes: the lease before the last one never counts again."""
    table = open_table()
    for step in range(3):
        table.record(digest(1), step, Lease(step, step + 1))
    entry = table._entries[digest(1)]
    for offset, count in ((entry.older, min(64, cleared)), (entry.newest, max(0, cleared - 64))):
        table._memory[offset : offset + count] = bytes(count)
    assert open_table().intervals() == ({digest(1): (2, Lease(2, 3))} if cleared <= 64 else {})
    table.forget(digest(1))
    assert open_table().intervals() == {}


def test_the_number_of_stores_begins_anew_after_the_largest(open_table):
    table = open_table()
    table.record(digest(1), 0, Lease(0, 1))
    table._entries[digest(1)].last_store = 2**32 - 3
    for step in range(1, 6):
        table.record(digest(1), step, Lease(step, step + 1))
        assert open_table().intervals() == {digest(1): (step, Lease(step, step + 1))}


@pytest.mark.parametrize(("epoch", "new_epoch"), [("boot 1", False), ("boot 2", True)])
def test_a_file_of_an_earlier_version_is_replaced(open_table, tmp_path, epoch, new_epoch):
    header = b"EMULEASES-1".ljust(32, b"\0") + hashlib.sha256(b"boot 1").digest()
    lease = struct.pack("=32sqqqq", bytes.fromhex(digest(1)), 1, 2, 3, 1 ^ 2 ^ 3 ^ 0x5EED)
    (tmp_path / "leases").write_bytes(header + lease * 256)
    table = open_table(epoch)
    assert (table.intervals(), table.new_epoch) == ({}, new_epoch)


def test_a_file_that_is_something_else_is_begun_anew(open_table, tmp_path):
    (tmp_path / "leases").write_bytes(b"x" * 100)
    table = open_table()
    assert (table.intervals(), table.new_epoch) == ({}, False)
    assert os.stat(tmp_path / "leases").st_mode & 0o777 == 0o600


def test_a_place_where_it_cant_be(tmp_path):
    with pytest.raises(ClusterError, match=r"leases: can't keep leases there: .+; move it away, or make room"):
        IntervalFile(tmp_path / "missing" / "leases", "boot")
    (tmp_path / "leases").mkdir()
    with pytest.raises(ClusterError, match="can't keep leases there: Is a directory"):
        IntervalFile(tmp_path / "leases", "boot")


def test_a_full_disk_is_an_error_not_a_dead_process(open_table, monkeypatch):
    table = open_table()
    for number in range(len(table._free)):
        table.record(digest(number), 1, Lease(1, 2))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ClusterError, match="No space left on device; move it away, or make room on the disk"):
        table.record(digest("one too many"), 1, Lease(1, 2))
    table.record(digest(0), 2, Lease(3, 4))  # those that have an entry go on
