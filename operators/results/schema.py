"""The tables of the operator's results store, and the opening of its file.

events      Events of jobs that aren't archived, from nodes and Kubernetes: JobEvent, by its place in its stream; old ranges of
            progress are merged (thinning.py).
positions   The newest id that was read of each stream of Redis.
unread      Ids of events that were deleted before they were read.
jobs        JobFacts of the jobs that aren't archived.
results     Of archived jobs: the whole JobResult as JSON (job.py).
predictions The prediction that was made at the submission of a job.
changes     Per job the number of its last change; the largest is the version of the store.

Times are nanoseconds of the operator's wall clock since 1970, except wall_ns and at_ns of an event (JobEvent).
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.sqlite import transaction

VERSION = 1
BUSY_S = 10.0
"""Maximum wait for another connection's transaction (host seconds); all of them are the operator's, and short."""
_SCHEMA = """
create table if not exists events (stream text not null, epoch integer not null, sequence integer not null,
  job_uid text not null, node text not null, number integer not null, at_ns integer not null, wall_ns integer not null,
  kind text not null, job_key text not null, from_step integer not null, steps_done integer not null,
  detail text not null, namespace text not null, pod text not null, absorbed integer not null,
  received_ns integer not null, since_number integer not null, since_ns integer not null,
  primary key (stream, epoch, sequence)) without rowid;
create index if not exists events_of_job on events (job_uid);
create table if not exists positions (stream text primary key, epoch integer not null, sequence integer not null)
  without rowid;
create table if not exists unread (stream text not null, epoch integer not null, sequence integer not null,
  primary key (stream, epoch, sequence)) without rowid;
create table if not exists jobs (uid text primary key, namespace text not null, name text not null,
  submitted_ns integer not null, tasks integer not null, steps integer not null, gpus integer not null,
  isolated_s real, policy text not null, failed_ns integer, kind text not null, experiment text not null,
  deleted_ns integer, completed_ns integer) without rowid;
create table if not exists predictions (uid text primary key, seconds real not null, by text not null,
  at_ns integer not null) without rowid;
create table if not exists results (uid text primary key, finished_ns integer not null, result text not null) without rowid;
create index if not exists results_by_end on results (finished_ns);
create table if not exists changes (uid text primary key, number integer not null) without rowid;
create index if not exists changes_by_number on changes (number);
"""


def opened(path: Path) -> sqlite3.Connection:
    """A connection for one thread at a time. Raises ClusterError if the file can't be used, or a newer emugpu wrote it.

    It is synced to disk at each commit: committed events are then acknowledged, and Redis may delete them at once.
    """
    with contextlib.ExitStack() as undo:
        try:
            db = sqlite3.connect(path, isolation_level=None, timeout=BUSY_S, check_same_thread=False)
            undo.callback(db.close)
            db.execute("pragma journal_mode=wal")
            db.execute("pragma synchronous=full")
            _prepare(db)
        except sqlite3.Error as error:
            fix = "give the operator a volume that it may write to, or move the file away to start afresh"
            raise ClusterError(f"{path}: can't use this file as the operator's store: {error}; {fix}") from error
        undo.pop_all()
    return db


def _prepare(db: sqlite3.Connection) -> None:
    with transaction(db):
        (version,) = db.execute("pragma user_version").fetchone()
        if version > VERSION:
            raise sqlite3.DatabaseError(f"a newer emugpu wrote it (version {version}, not {VERSION})")
        for statement in _SCHEMA.split(";"):
            db.execute(statement)
        db.execute(f"pragma user_version = {VERSION}")


def unreadable(path: Path, error: sqlite3.Error) -> ClusterError:
    """Why a reader can't use this file, and the fix: it doesn't exist (yet), or is damaged as a whole."""
    if type(error) is sqlite3.DatabaseError:  # others are of the moment
        fix = (
            "move it away and restart the controller of EmuJobs, which begins anew with what Redis and Kubernetes have"
        )
    else:
        fix = (
            "the controller of EmuJobs makes it: does it run, with this volume and as this user? "
            "Restart it where the file was taken away meanwhile"
        )
    return ClusterError(f"{path}: can't read this file as the operator's store: {error}; {fix}")


def left_out(path: Path | str, uids: Iterable[str]) -> ClusterError:
    """The archived results of these jobs are damaged; all others can be read."""
    names = sorted(uids)
    deletion = f"delete from results where uid in ({', '.join(map(repr, names))})"
    fix = f"they go in their time, or now by `{deletion}`"
    return ClusterError(f"{path}: left out, as what is archived of them is damaged: job {', '.join(names)}; {fix}")


def opened_to_read(path: Path) -> sqlite3.Connection:
    """A read-only connection for one thread at a time. Raises ClusterError if there is no store (yet), or none that can be
    read."""
    with contextlib.ExitStack() as undo:
        try:
            place = f"file:{quote(str(path.absolute()))}?mode=ro"
            db = sqlite3.connect(place, uri=True, isolation_level=None, timeout=BUSY_S, check_same_thread=False)
            undo.callback(db.close)
            (version,) = db.execute("pragma user_version").fetchone()
            db.execute("select 1 from changes").fetchone()
        except sqlite3.Error as error:
            raise unreadable(path, error) from error
        if version != VERSION:
            raise ClusterError(f"{path}: is of version {version}, not {VERSION}; read it with the emugpu that wrote it")
        undo.pop_all()
    return db
