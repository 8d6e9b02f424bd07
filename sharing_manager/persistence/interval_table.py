"""The last interval of each key, stored so that it survives `kill -9` of the manager: a small memory-mapped file.

A key is a grant's digest, with its last lease; or one of interval_keys.py, with a piece of device time, or (core/half_served.py)
with a time and the work that was left then.

After a restart, the manager must know which device time it has leased; otherwise leases from before and after would
overlap. It must also give the same answer to a repeated request. Alternatives cost more: a database transaction per lease
costs twice as much as the rest of the answer, and a grace period after a restart stops every job for the length of the
longest step. A store of 64 bytes into a mapped page takes a microsecond, and the page belongs to the kernel. The
file isn't synced: a power cut restarts the clock anyway. The header names the clock's epoch (the host's boot), so old
leases are recognised.

A kill may interrupt a store, so the entry of a key has two records, which are written in turn: at worst the newest interval is
missing, which no job has seen, and the one before it counts.

    header  64 bytes       magic with the format's version, SHA-256 of the epoch's name
    entry   2 x 64 bytes   record: key, number, start, end, number of the store modulo 2^32, CRC-32 of all this
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.domain.lease import Lease

_FORMAT = b"EMULEASES-"
_MAGIC = (_FORMAT + b"2").ljust(32, b"\0")
_RECORD = struct.Struct("=32sqqqI")
_CHECK = struct.Struct("=I")
_HALF = _RECORD.size + _CHECK.size
_HEADER, _ENTRY = _HALF, 2 * _HALF
_FIRST_ENTRIES = 256
_STORES = 2**32


class IntervalTable(Protocol):
    """Stores the last interval of each key, with a number: a job's step, or that of a demand or a cut. Keys have 64 hexadecimal
    characters."""

    new_epoch: bool
    """True if the times in the event log belong to another clock, because the host has booted since."""

    def record(self, key: str, number: int, interval: Lease) -> None:
        """Replace the key's last interval by this one."""
        ...

    def forget(self, key: str) -> None:
        """Delete the key's interval, if it has one."""
        ...

    def intervals(self) -> Mapping[str, tuple[int, Lease]]:
        """Number and interval of each key."""
        ...


class MemoryIntervals:
    """A table in memory, which ends with the process."""

    new_epoch = False

    def __init__(self) -> None:
        self._intervals: dict[str, tuple[int, Lease]] = {}

    def record(self, key: str, number: int, interval: Lease) -> None:
        self._intervals[key] = (number, interval)

    def forget(self, key: str) -> None:
        self._intervals.pop(key, None)

    def intervals(self) -> Mapping[str, tuple[int, Lease]]:
        return dict(self._intervals)


@dataclass(frozen=True, slots=True)
class IntervalTables:
    """What survives of device time: the last lease of each grant, the last pieces of shared devices
    (sharing_manager/core/shared_time.py), and the demands that they were serving (core/half_served.py)."""

    leases: IntervalTable = field(default_factory=MemoryIntervals)
    pieces: IntervalTable = field(default_factory=MemoryIntervals)
    half_served: IntervalTable = field(default_factory=MemoryIntervals)


@dataclass(slots=True)
class _Entry:
    """The two records of a key. `last_store`: its number; odd ones go to the second record."""

    offset: int
    key: bytes
    last_store: int = -1

    @property
    def newest(self) -> int:
        """Where the last record is."""
        return self.offset + self.last_store % 2 * _HALF

    @property
    def older(self) -> int:
        """Where the record before it is, which the next store replaces."""
        return self.offset + (self.last_store + 1) % 2 * _HALF


class IntervalFile:
    """The table in the file at `path`. `epoch` names the clock of the intervals (the host's boot).

    A file of another epoch, or in another format, is replaced: a manager of another version begins without the answers of the
    one before. Raises ClusterError if the file can't be used.
    """

    def __init__(self, path: Path, epoch: str) -> None:
        header = _MAGIC + hashlib.sha256(epoch.encode()).digest()
        self._path = path
        with self._translated():
            former = path.read_bytes()[:_HEADER] if path.exists() else b""
            if former != header:
                path.unlink(missing_ok=True)
        self._memory = self._map(_HEADER + _FIRST_ENTRIES * _ENTRY)
        self._memory[:_HEADER] = header
        self.new_epoch = former.startswith(_FORMAT) and former[len(_MAGIC) :] != header[len(_MAGIC) :]
        self._entries: dict[str, _Entry] = {}
        self._free: list[int] = []
        for offset in reversed(range(_HEADER, len(self._memory) - _ENTRY + 1, _ENTRY)):
            if (entry := self._restored(offset)) is None:
                self._free.append(offset)
            else:
                self._entries[entry.key.hex()] = entry

    def record(self, key: str, number: int, interval: Lease) -> None:
        """Raises ClusterError if the disk is full."""
        entry = self._entries.get(key)
        if entry is None:
            if not self._free:
                self._grow()
            entry = self._entries[key] = _Entry(self._free.pop(), bytes.fromhex(key))
        entry.last_store = (entry.last_store + 1) % _STORES
        record = _RECORD.pack(entry.key, number, interval.start_ns, interval.end_ns, entry.last_store)
        offset = entry.newest
        self._memory[offset : offset + _HALF] = record + _CHECK.pack(zlib.crc32(record))

    def forget(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            for offset in (entry.older, entry.newest):  # the older one must never be the only one
                self._memory[offset : offset + _HALF] = bytes(_HALF)
            self._free.append(entry.offset)

    def intervals(self) -> Mapping[str, tuple[int, Lease]]:
        found = {key: self._read(entry.newest) for key, entry in self._entries.items()}
        return {key: record[1:3] for key, record in found.items() if record is not None}

    def close(self) -> None:
        self._memory.close()

    def _restored(self, offset: int) -> _Entry | None:
        """The entry by the newer one of its records that are complete."""
        even, odd = self._read(offset), self._read(offset + _HALF)
        newest = odd if even is None or (odd is not None and odd[3] == (even[3] + 1) % _STORES) else even
        return None if newest is None else _Entry(offset, newest[0], newest[3])

    def _read(self, offset: int) -> tuple[bytes, int, Lease, int] | None:
        """Key, number, interval and number of the store; None: empty, or the process was killed during the store."""
        record = self._memory[offset : offset + _RECORD.size]
        (check,) = _CHECK.unpack_from(self._memory, offset + _RECORD.size)
        if zlib.crc32(record) != check:  # an empty page's isn't 0
            return None
        key, number, start_ns, end_ns, store = _RECORD.unpack(record)
        return key, number, Lease(start_ns, end_ns), store

    def _grow(self) -> None:
        size = len(self._memory)
        memory = self._map(2 * size - _HEADER)
        self._memory.close()
        self._memory = memory
        self._free = list(reversed(range(size, len(memory) - _ENTRY + 1, _ENTRY)))

    def _map(self, size: int) -> mmap.mmap:
        """Map the file with at least this size. Its disk space is allocated first: a store to a page without disk space
        would kill the process (SIGBUS)."""
        with self._translated():
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, size)
                return mmap.mmap(descriptor, 0)
            finally:
                os.close(descriptor)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            fix = "move it away, or make room on the disk"
            raise ClusterError(f"{self._path}: can't keep leases there: {error.strerror}; {fix}") from error
