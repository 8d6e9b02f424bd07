"""The last lease of each grant, stored so that it survives `kill -9` of the manager: a small memory-mapped file.

After a restart, the manager must know which device time it has leased; otherwise leases from before and after would
overlap. It must also give the same answer to a repeated request. Alternatives cost more: a database transaction per lease
costs twice as much as the rest of the answer, and a grace period after a restart stops every job for the length of the
longest step. A store of 64 bytes into a mapped page takes less than a microsecond, and the page belongs to the kernel. The
file isn't synced: a power cut restarts the clock anyway. The header names the clock's epoch (the host's boot), so old
leases are recognised.

Header and slots have 64 bytes each. Header: magic, SHA-256 of the epoch's name. Slot: digest of the token, step, start,
end, XOR of these numbers as a check.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.domain.lease import Lease

_SLOT = struct.Struct("=32sqqqq")
_MAGIC = b"EMULEASES-1".ljust(32, b"\0")
_FIRST_SLOTS = 256
_CHECK = 0x5EED  # makes the check of an empty page fail


class LeaseBook(Protocol):
    """Stores the last lease of each grant."""

    new_epoch: bool
    """True if the times in the event log belong to another clock, because the host has booted since."""

    def record(self, digest: str, step: int, lease: Lease) -> None:
        """Replace the grant's last lease by this one."""
        ...

    def forget(self, digest: str) -> None:
        """Delete the grant's lease, if it has one."""
        ...

    def leases(self) -> Mapping[str, tuple[int, Lease]]:
        """Step and lease of each grant, by digest."""
        ...


class MemoryLeases:
    """A lease book in memory, which ends with the process."""

    new_epoch = False

    def __init__(self) -> None:
        self._leases: dict[str, tuple[int, Lease]] = {}

    def record(self, digest: str, step: int, lease: Lease) -> None:
        self._leases[digest] = (step, lease)

    def forget(self, digest: str) -> None:
        self._leases.pop(digest, None)

    def leases(self) -> Mapping[str, tuple[int, Lease]]:
        return dict(self._leases)


@dataclass(frozen=True, slots=True)
class LeaseBooks:
    """What survives of device time: the last lease of each grant, and the last pieces of shared devices
    (sharing_manager/core/shared_time.py)."""

    leases: LeaseBook = field(default_factory=MemoryLeases)
    pieces: LeaseBook = field(default_factory=MemoryLeases)


class LeaseFile:
    """The lease book in the file at `path`. `epoch` names the clock of the lease times (the host's boot).

    A file of another epoch, or in an unknown format, is replaced. Raises ClusterError if the file can't be used.
    """

    def __init__(self, path: Path, epoch: str) -> None:
        header = _SLOT.pack(_MAGIC, *struct.unpack("=4q", hashlib.sha256(epoch.encode()).digest()))
        self._path = path
        with self._translated():
            former = path.read_bytes()[: _SLOT.size] if path.exists() else b""
            if former != header:
                path.unlink(missing_ok=True)
        self._memory = self._map((1 + _FIRST_SLOTS) * _SLOT.size)
        self._memory[: _SLOT.size] = header
        self.new_epoch = former[: len(_MAGIC)] == _MAGIC and former != header
        self._slot_of: dict[str, int] = {}
        self._free: list[int] = []
        for offset in reversed(range(_SLOT.size, len(self._memory) // _SLOT.size * _SLOT.size, _SLOT.size)):
            if (slot := self._read(offset)) is None:
                self._free.append(offset)
            else:
                self._slot_of[slot[0]] = offset

    def record(self, digest: str, step: int, lease: Lease) -> None:
        """Raises ClusterError if the disk is full."""
        offset = self._slot_of.get(digest)
        if offset is None:
            if not self._free:
                self._grow()
            offset = self._slot_of[digest] = self._free.pop()
        start_ns, end_ns = lease.start_ns, lease.end_ns
        check = step ^ start_ns ^ end_ns ^ _CHECK
        _SLOT.pack_into(self._memory, offset, bytes.fromhex(digest), step, start_ns, end_ns, check)

    def forget(self, digest: str) -> None:
        offset = self._slot_of.pop(digest, None)
        if offset is not None:
            self._memory[offset : offset + _SLOT.size] = bytes(_SLOT.size)
            self._free.append(offset)

    def leases(self) -> Mapping[str, tuple[int, Lease]]:
        return {slot[0]: slot[1:] for slot in self._all()}

    def close(self) -> None:
        self._memory.close()

    def _all(self) -> Iterator[tuple[str, int, Lease]]:
        for offset in self._slot_of.values():
            slot = self._read(offset)
            if slot is not None:
                yield slot

    def _read(self, offset: int) -> tuple[str, int, Lease] | None:
        digest, step, start_ns, end_ns, check = _SLOT.unpack_from(self._memory, offset)
        if step ^ start_ns ^ end_ns ^ _CHECK != check:
            # empty, or the process was killed during the store: then the job got no answer and will ask again
            return None
        return digest.hex(), step, Lease(start_ns, end_ns)

    def _grow(self) -> None:
        size = len(self._memory)
        memory = self._map(2 * size - _SLOT.size)
        self._memory.close()
        self._memory = memory
        self._free = list(reversed(range(size, len(memory), _SLOT.size)))

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
