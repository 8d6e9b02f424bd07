"""One clock for all processes of a host: three numbers in a small memory-mapped file with one writer and many readers.

Layout: 64 bytes, eight native 8-byte words. Each is aligned, so that storing it is atomic (C reads it as a struct):

| offset | type     | word |
|---|---|---|
| 0  | char[8]  | magic "EMUCLOCK" |
| 8  | int64_t  | version, 1 |
| 16 | int64_t  | mode: 0 host (the rate moves time), 1 warp (the sharing manager also jumps to the next deadline) |
| 24 | uint64_t | sequence: odd while a change is being written, +2 for each change |
| 32 | int64_t  | wall anchor, ns of CLOCK_MONOTONIC |
| 40 | int64_t  | emulated anchor, ns |
| 48 | double   | rate, emulated per wall time; 0 is paused |
| 56 | int64_t  | check: bitwise xor of the words at 32, 40 and 48 |

A reader reads the sequence, the anchors, CLOCK_MONOTONIC, and the sequence again. It starts over if the sequence was odd or
has changed, or if the check doesn't match. emulated = emulated anchor + floor((now - wall anchor) * rate). The writer reads
CLOCK_MONOTONIC after it has made the sequence odd, so time never goes back for any process. The check is for processors
that reorder stores (ARM), because Python has no memory barriers.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from emulator_runtime.domain.errors import ClusterError, InputError
from emulator_runtime.files import write_whole
from emulator_runtime.timing.anchors import Anchors, checked_rate
from emulator_runtime.timing.host import monotonic_ns, sleep_ns

Mode = Literal["host", "warp"]
MODES: tuple[Mode, ...] = ("host", "warp")

MAGIC = b"EMUCLOCK"
VERSION = 1
SIZE = 64
_VERSION, _MODE, _SEQUENCE, _WALL, _EMULATED, _RATE, _CHECK = range(1, 8)

_QUICK_TRIES = 100
_TRIES = 5_000  # after the quick tries, one each 0.2 ms: this gives a writer that lost its core one second to finish
_PAUSE_NS = 200_000


class SharedClockFile:
    """The clock in the file at `path`. Use `create` (the writer) or `open`."""

    def __init__(self, path: str, memory: mmap.mmap, now: Callable[[], int]) -> None:
        self.path = path
        self._now = now
        self._memory = memory
        self._words = memoryview(memory).cast("q")
        self._doubles = memoryview(memory).cast("d")
        self._last: tuple[int, Anchors] = (-1, Anchors(0, 0, 0.0))

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        rate: float = 1.0,
        mode: Mode = "host",
        *,
        emulated_ns: int = 0,
        now: Callable[[], int] = monotonic_ns,
    ) -> SharedClockFile:
        """Create a clock that is at `emulated_ns` now. It replaces an existing file; processes that opened the old file keep it.

        Raises InputError for an invalid rate or mode, ClusterError if the file can't be written.
        """
        if mode not in MODES:
            raise InputError("mode", f"must be one of {', '.join(MODES)}, got {mode!r}")
        path = os.fspath(path)
        rate, wall = checked_rate(rate), now()
        (rate_bits,) = struct.unpack("=q", struct.pack("=d", rate))
        check = wall ^ emulated_ns ^ rate_bits
        words = (MAGIC, VERSION, MODES.index(mode), 0, wall, emulated_ns, rate, check)
        unfinished = Path(f"{path}.{os.getpid()}.new")
        try:
            write_whole(Path(path), struct.pack("=8sqqqqqdq", *words), sync=False, unfinished=unfinished)
        except OSError as error:
            fix = "give a path in a directory that this process may write"
            raise ClusterError(f"{path}: can't write the shared clock ({error.strerror}); {fix}") from error
        return cls.open(path, writable=True, now=now)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, writable: bool = False, now: Callable[[], int] = monotonic_ns
    ) -> SharedClockFile:
        """Map the clock at `path`, either for reading or as its only writer.

        Raises ClusterError if the file doesn't exist or is older than the host's last boot, InputError if it isn't a
        clock file of this version.
        """
        path = os.fspath(path)
        try:
            with open(path, "r+b" if writable else "rb") as file:
                _check_header(path, file.read(SIZE))
                access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
                memory = mmap.mmap(file.fileno(), SIZE, access=access)
        except OSError as error:
            fix = "start what creates it (the sharing manager) first, or correct the path"
            raise ClusterError(f"{path}: can't open the shared clock ({error.strerror}); {fix}") from error
        clock = cls(path, memory, now)
        anchors, wall = clock.sample()
        if anchors.wall_ns > wall:
            raise ClusterError(f"{path}: this shared clock is from before the last boot; remove it and create it anew")
        return clock

    @property
    def mode(self) -> Mode:
        return MODES[self._words[_MODE]]

    def read(self) -> Anchors:
        """The current anchors. Raises ClusterError if the writer died while it was changing them."""
        return self.sample()[0]

    def now_ns(self) -> int:
        """The emulated time now. It is never earlier than what any process has read before."""
        anchors, wall = self.sample()
        return anchors.emulated_at(wall)

    def sample(self) -> tuple[Anchors, int]:
        """The anchors, and a wall time at which they were valid. Raises ClusterError like `read`."""
        words = self._words
        for attempt in range(_TRIES):
            if attempt >= _QUICK_TRIES:
                sleep_ns(_PAUSE_NS)
            before = words[_SEQUENCE]
            cached_sequence, anchors = self._last
            if cached_sequence != before:
                anchors = Anchors(words[_WALL], words[_EMULATED], self._doubles[_RATE])
                if before & 1 or words[_WALL] ^ words[_EMULATED] ^ words[_RATE] != words[_CHECK]:
                    continue
            wall = self._now()
            if words[_SEQUENCE] == before:
                self._last = (before, anchors)
                return anchors, wall
        raise ClusterError(
            f"{self.path}: the shared clock's writer died in the middle of a change; create the clock anew"
        )

    def set_rate(self, rate: float) -> None:
        """Continue from now at `rate`; time doesn't jump. Raises InputError for an invalid rate."""
        rate = checked_rate(rate)
        self._change(lambda anchors, wall: anchors.with_rate(rate, wall))

    def pause(self) -> None:
        """Stop emulated time; `set_rate` starts it again."""
        self.set_rate(0.0)

    def jump_to_ns(self, emulated_ns: int) -> None:
        """Move emulated time forward to `emulated_ns`. Does nothing if it is already later."""
        self._change(lambda anchors, wall: anchors.jumped_to(emulated_ns, wall))

    def close(self) -> None:
        """Unmap the file; the object can't be used afterwards."""
        self._words.release()
        self._doubles.release()
        self._memory.close()

    def _change(self, change: Callable[[Anchors, int], Anchors]) -> None:
        words = self._words
        if words.readonly:
            raise ClusterError(f"{self.path}: this process only reads the shared clock; open it with writable=True")
        before, _ = self.sample()
        words[_SEQUENCE] += 1
        try:
            new = change(before, self._now())
            words[_WALL], words[_EMULATED], self._doubles[_RATE] = new.wall_ns, new.emulated_ns, new.rate
            words[_CHECK] = words[_WALL] ^ words[_EMULATED] ^ words[_RATE]
        finally:
            words[_SEQUENCE] += 1


def _check_header(path: str, header: bytes) -> None:
    if len(header) < SIZE:
        raise InputError(
            path, f"not a shared clock: {len(header)} bytes instead of {SIZE}; give the file that create() made"
        )
    magic, version, mode = struct.unpack_from("=8sqq", header)
    if magic != MAGIC:
        raise InputError(path, f"not a shared clock: starts with {magic!r} instead of {MAGIC!r}; check the path")
    if version != VERSION:
        fix = "run the same version of emugpu on both sides"
        raise InputError(path, f"shared clock of version {version}, this program reads version {VERSION}; {fix}")
    if not 0 <= mode < len(MODES):
        raise InputError(path, f"shared clock with the unknown mode {mode}; create it anew")
