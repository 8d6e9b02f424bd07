"""The node's durable outbox: the manager's event log, read through a second connection to the same SQLite file.

The manager writes each event there before a job gets its answer, so no event is stored twice. This module adds two tables:
the position of shipping, and the number of merged entries. Each change is one short transaction, because the manager waits
for the file meanwhile.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.sqlite import transaction
from sharing_manager.store.compaction import Absorb, Compactor
from sharing_manager.store.entries import TEXTS, Entry
from sharing_manager.store.resume import Position

CHUNK_ROWS = 500
"""Maximum number of rows in one transaction, which then takes a few milliseconds."""
ROW_BYTES = 96
"""Size of a row without its texts: numbers, header and its share of a page."""

_SCHEMA = """
create table if not exists outbox (one integer primary key check (one = 1), epoch integer not null,
  sent integer not null default 0, shipped integer not null default 0, base integer not null default 0,
  merged integer not null default 0);
create table if not exists outbox_absorbed (sequence integer primary key, entries integer not null);
"""
_COLUMNS = (
    "sequence",
    "at_ns",
    "wall_ns",
    "kind",
    "job_id",
    "job_id",
    "from_step",
    "steps_done",
    "detail",
    "namespace",
    "pod",
)
"""In the order of Entry's fields. In the table, job_id of a pod is its job key, NAMESPACE/JOB-UID/INDEX (hence job_id twice in
this list). An Entry has the namespace as a field, so `_without_namespace` removes it from Entry.job_id and Entry.job_key."""
_SIZE = f"{ROW_BYTES}" + "".join(f" + length(cast({name} as blob))" for name in _COLUMNS if name in TEXTS)


@dataclass(frozen=True, slots=True)
class Backlog:
    """The entries that haven't been shipped. `oldest_wall_ns` is when the oldest was recorded (0 if there is none, or
    unknown)."""

    rows: int = 0
    size_bytes: int = 0
    oldest_wall_ns: int = 0


class Outbox:
    """One connection, for one thread. Raises ClusterError if the file can't be used as an outbox."""

    def __init__(self, path: Path, node: str, now_ms: Callable[[], int]) -> None:
        self._node = node
        with contextlib.ExitStack() as undo:
            try:
                self._db = sqlite3.connect(path, isolation_level=None)
                undo.callback(self._db.close)
                self._db.execute("pragma journal_mode=wal")
                self._db.execute("pragma synchronous=off")
                self._db.executescript(_SCHEMA)
                self._db.execute("insert or ignore into outbox (one, epoch) values (1, ?)", (now_ms(),))
                self.batch(1)  # fails if the file isn't an event log
            except sqlite3.Error as error:
                fix = "the sharing manager must have made it; move it away to start afresh"
                raise ClusterError(f"{path}: can't use this file as outbox: {error}; {fix}") from error
            undo.pop_all()

    def close(self) -> None:
        self._db.close()

    # --- position of shipping ---------------------------------------------------------------------------------------

    def position(self) -> Position:
        return Position(*self._db.execute("select epoch, sent, shipped, base from outbox").fetchone())

    def resume_at(self, position: Position) -> None:
        """Continue from this position."""
        self._db.execute(
            "update outbox set epoch = ?, sent = ?, shipped = ?, base = ?",
            (position.epoch, position.sent, position.shipped, position.base),
        )

    def mark_sent(self, sequence: int) -> None:
        """Redis may have the entries up to this one from now on, so they must not change."""
        self._db.execute("update outbox set sent = max(sent, ?)", (sequence,))

    def mark_shipped(self, sequence: int) -> None:
        """Redis has confirmed the entries up to this one."""
        self._db.execute("update outbox set shipped = ?", (sequence,))

    def batch(self, rows: int) -> list[Entry]:
        """The oldest entries that haven't been shipped, in order."""
        return self._entries("e.sequence > (select shipped from outbox)", (), rows)

    def between(self, after: int, up_to: int) -> list[Entry]:
        """The entries with `after` < number <= `up_to`."""
        return self._entries("e.sequence > ? and e.sequence <= ?", (after, up_to), max(0, up_to - after))

    def backlog(self, after: int | None = None) -> Backlog:
        """The entries that haven't been shipped, or only those with a number above `after`."""
        rows, size = self._db.execute(
            f"select count(*), coalesce(sum({_SIZE}), 0) from events"
            " where sequence > coalesce(?, (select shipped from outbox))",
            (after,),
        ).fetchone()
        oldest = self.batch(1)
        return Backlog(rows, size, oldest[0].wall_ns if oldest else 0)

    def newest(self) -> int:
        """The number of the newest event; 0 if none was ever recorded."""
        return int(self._db.execute("select coalesce(max(sequence), 0) from events").fetchone()[0])

    def oldest(self) -> int | None:
        """The number of the oldest event in the file; None if it is empty."""
        oldest: int | None = self._db.execute("select min(sequence) from events").fetchone()[0]
        return oldest

    def merged(self) -> int:
        """Number of entries that were merged into later ones because the outbox was full."""
        return int(self._db.execute("select merged from outbox").fetchone()[0])

    # --- making room ------------------------------------------------------------------------------------------------

    def compact(self, excess_bytes: int) -> int:
        """Free at least `excess_bytes`, from the oldest entry on, if the rules allow it. Returns the number of freed
        bytes.

        Entries that may have been sent aren't changed; otherwise a reader would get the same steps under two numbers.
        """
        compactor, freed, at = Compactor(), 0, self.position().sent
        while freed < excess_bytes:
            entries = self._entries("e.sequence > ?", (at,), CHUNK_ROWS)
            if not entries:
                break
            merges = [absorb for entry in entries if (absorb := compactor.feed(entry)) is not None]
            self._apply(merges)
            freed += sum(size_of(absorb.gone) for absorb in merges)
            at = entries[-1].sequence
        return freed

    def _apply(self, merges: list[Absorb]) -> None:
        with transaction(self._db):
            for absorb in merges:
                gone, into = absorb.gone.sequence, absorb.into
                self._db.execute("delete from events where sequence = ?", (gone,))
                self._db.execute("delete from outbox_absorbed where sequence = ?", (gone,))
                self._db.execute("update events set from_step = ? where sequence = ?", (into.from_step, into.sequence))
                self._db.execute("insert or replace into outbox_absorbed values (?, ?)", (into.sequence, into.absorbed))
            self._db.execute("update outbox set merged = merged + ?", (len(merges),))

    def prune(self, up_to: int) -> int:
        """Delete shipped entries up to this number, at most CHUNK_ROWS. Returns how many were deleted."""
        oldest = self.oldest()
        if oldest is None or oldest > up_to:
            return 0
        with transaction(self._db):
            gone = self._db.execute(
                "delete from events where sequence in (select sequence from events"
                " where sequence <= min(?, (select shipped from outbox)) order by sequence limit ?)",
                (up_to, CHUNK_ROWS),
            ).rowcount
            if gone:
                self._db.execute("delete from outbox_absorbed where sequence < (select min(sequence) from events)")
        return gone

    # --- progress of jobs -------------------------------------------------------------------------------------------

    def progress_of(self, job_key: str) -> int | None:
        """The highest number of completed steps that this node knows; None if it doesn't know the key."""
        row = self._db.execute("select steps_done from progress where job_id = ?", (job_key,)).fetchone()
        return None if row is None else int(row[0])

    def waiting_progress(self) -> list[tuple[str, int]]:
        """Job key and highest number of completed steps of every job with entries that haven't been shipped."""
        return self._db.execute(
            "select job_id, max(steps_done) from events where sequence > (select shipped from outbox) group by job_id"
        ).fetchall()

    def all_progress(self) -> list[tuple[str, int]]:
        """Job key and completed steps of every job that this node knows."""
        return self._db.execute("select job_id, steps_done from progress").fetchall()

    # --- SQLite -----------------------------------------------------------------------------------------------------

    def _entries(self, where: str, parameters: tuple[int, ...], rows: int) -> list[Entry]:
        rows_found = self._db.execute(
            f"select {', '.join(f'e.{name}' for name in _COLUMNS)}, coalesce(a.entries, 0) from events e"
            f" left join outbox_absorbed a on a.sequence = e.sequence where {where} order by e.sequence limit ?",
            (*parameters, rows),
        )
        stored = (
            Entry(self._node, *row) for row in rows_found.fetchall()
        )  # the columns are in the order of the fields
        return [_without_namespace(entry) for entry in stored]


def size_of(entry: Entry) -> int:
    """What an entry takes in the outbox, in bytes, as `Outbox.backlog` counts it."""
    stored = replace(entry, job_id=entry.progress_key)
    return ROW_BYTES + sum(len(getattr(stored, name).encode()) for name in _COLUMNS if name in TEXTS)


def _without_namespace(entry: Entry) -> Entry:
    key = entry.job_key.removeprefix(f"{entry.namespace}/")
    return entry if key == entry.job_key else replace(entry, job_id=key, job_key=key)
