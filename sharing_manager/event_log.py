"""What happened on this node, in order, and what was promised: an interface and its embedded store (SQLite).

Written before a job gets its answer, so that it survives `kill -9`. The write-ahead log is not synced at each commit: a
power cut takes the emulated jobs with it, so there is nothing to keep from it.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from emulator_runtime.domain.errors import ClusterError
from sharing_manager.grants import Grant, GrantState


@dataclass(frozen=True, slots=True)
class ManagerEvent:
    """One entry. `kind`: granted, attached, stopping, progress, released, finished, failed.

    Each entry covers the steps [from_step, steps_done) of its job and begins where the one before ended. Where
    `steps_done` is the lower one, the job came back with an older checkpoint and does the steps between again. `at_ns` is
    the manager's clock when it saw it.
    """

    at_ns: int
    kind: str
    job_id: str
    steps_done: int
    from_step: int = 0
    detail: str = ""
    sequence: int = 0


class EventLog(Protocol):
    """Where grants and events are kept."""

    def record(self, event: ManagerEvent, grant: Grant) -> ManagerEvent:
        """Write the event and the grant as it is now, in one transaction; answers the event with its number."""
        ...

    def after(self, sequence: int) -> Iterable[ManagerEvent]:
        """The events with a number above `sequence`, in order."""
        ...

    def grants(self) -> Iterable[Grant]:
        """All grants, as last written; of a job's grants the latest comes last."""
        ...

    def close(self) -> None: ...


_SCHEMA = """
create table if not exists events (sequence integer primary key autoincrement, at_ns integer not null, kind text not null,
  job_id text not null, from_step integer not null, steps_done integer not null, detail text not null);
create table if not exists grants (number integer primary key autoincrement, token text not null unique,
  job_id text not null, devices text not null, steps_done integer not null, floor_ns integer not null,
  state text not null, stopping integer not null);
"""


class SqliteEventLog:
    """The embedded store: one file per node. Raises ClusterError when the file can't be used."""

    def __init__(self, path: Path) -> None:
        with contextlib.ExitStack() as undo:
            try:
                self._db = sqlite3.connect(path, isolation_level=None)
                undo.callback(self._db.close)
                self._db.execute("pragma journal_mode=wal")
                self._db.execute("pragma synchronous=off")
                self._db.executescript(_SCHEMA)
            except sqlite3.Error as error:
                fix = "move it away to start afresh"
                raise ClusterError(f"{path}: can't use this file as event log: {error}; {fix}") from error
            undo.pop_all()

    def record(self, event: ManagerEvent, grant: Grant) -> ManagerEvent:
        self._db.execute("begin immediate")
        try:
            cursor = self._db.execute(
                "insert into events (at_ns, kind, job_id, from_step, steps_done, detail) values (?, ?, ?, ?, ?, ?)",
                (event.at_ns, event.kind, event.job_id, event.from_step, event.steps_done, event.detail),
            )
            self._write_grant(grant)
            self._db.execute("commit")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("rollback")
            raise
        sequence = cursor.lastrowid or 0
        return ManagerEvent(
            event.at_ns, event.kind, event.job_id, event.steps_done, event.from_step, event.detail, sequence
        )

    def _write_grant(self, grant: Grant) -> None:
        self._db.execute(
            "insert into grants (token, job_id, devices, steps_done, floor_ns, state, stopping) values (?, ?, ?, ?, ?, ?, ?)"
            " on conflict (token) do update set steps_done = excluded.steps_done, floor_ns = excluded.floor_ns,"
            " state = excluded.state, stopping = excluded.stopping",
            (
                grant.token,
                grant.job_id,
                json.dumps(grant.devices),
                grant.steps_done,
                grant.floor_ns,
                str(grant.state),
                int(grant.stopping),
            ),
        )

    def after(self, sequence: int) -> Iterator[ManagerEvent]:
        rows = self._db.execute(
            "select at_ns, kind, job_id, steps_done, from_step, detail, sequence from events where sequence > ?"
            " order by sequence",
            (sequence,),
        )
        for row in rows.fetchall():
            yield ManagerEvent(*row)

    def grants(self) -> Iterator[Grant]:
        rows = self._db.execute(
            "select token, job_id, devices, steps_done, floor_ns, state, stopping from grants order by number"
        )
        for token, job_id, devices, steps_done, floor_ns, state, stopping in rows.fetchall():
            yield Grant(
                token=token,
                job_id=job_id,
                devices=tuple(json.loads(devices)),
                steps_done=steps_done,
                floor_ns=floor_ns,
                state=GrantState(state),
                stopping=bool(stopping),
                logged_steps=steps_done,
            )

    def close(self) -> None:
        self._db.close()
