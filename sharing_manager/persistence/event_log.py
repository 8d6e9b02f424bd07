"""The events of this node in order, and its grants: an interface and its embedded store (SQLite).

An event is written before the job gets its answer, so that it survives `kill -9`. The write-ahead log isn't synced at each
commit, because a power cut ends the emulated jobs too. The file holds digests of tokens, never tokens.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Protocol

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.files import write_whole
from emulator_runtime.sharing.demands import Terms
from emulator_runtime.sqlite import transaction
from sharing_manager.grants.grant import Grant, GrantState, devices_and_places
from sharing_manager.grants.identity import PodIdentity


@dataclass(frozen=True, slots=True)
class ManagerEvent:
    """One event. `kind` is one of granted, attached, stopping, progress, released, finished, failed; oom, device-lost;
    fenced, suspended, gone.

    Each event covers the steps [from_step, steps_done) of its job, and starts where the previous one ended. If `steps_done`
    is lower than `from_step`, the job resumed from an older checkpoint and repeats the steps between. Example: progress [0,
    50), then attached with from_step 50 and steps_done 40; the job repeats steps 40 to 49.

    `at_ns` is the manager's clock, `wall_ns` the host's date and time. For a pod, `job_id` is its job key. `detail` of
    `attached` lists the device ids, comma-separated (empty for a job on CPUs only); for other kinds it is the reason, if
    any.
    """

    at_ns: int
    kind: str
    job_id: str
    steps_done: int
    from_step: int = 0
    detail: str = ""
    sequence: int = 0
    wall_ns: int = 0
    namespace: str = ""
    pod: str = ""


class EventLog(Protocol):
    """Stores grants and events."""

    def record(self, event: ManagerEvent, grant: Grant) -> ManagerEvent:
        """Write the event, the current grant and its job's progress in one transaction. Returns the event with its
        number."""
        ...

    def after(self, sequence: int) -> Iterable[ManagerEvent]:
        """The events with a number above `sequence`, in order."""
        ...

    def grants(self) -> Iterable[Grant]:
        """All grants as last written, each job's latest grant last."""
        ...

    def forget(self, digests: Iterable[str]) -> None:
        """Delete these grants."""
        ...

    def slots(self) -> dict[str, str]:
        """The slots that stand for other devices than that of their name (devices/slots.py), as last written."""
        ...

    def write_slots(self, moved: Mapping[str, str]) -> None:
        """Replace `slots`."""
        ...

    def progress(self, job_id: str) -> int | None:
        """The highest number of completed steps among the job's grants; None for a job that never ran here, or ran long
        ago."""
        ...

    @property
    def secret(self) -> bytes:
        """The key from which the tokens of owners' grants are derived."""
        ...

    def close(self) -> None: ...


MAX_JOBS = 20_000
"""Maximum number of jobs whose progress is stored; the oldest are deleted first."""
_VERSION = 4
_SCHEMA = """
create table if not exists events (sequence integer primary key autoincrement, at_ns integer not null, kind text not null,
  job_id text not null, from_step integer not null, steps_done integer not null, detail text not null,
  wall_ns integer not null default 0, namespace text not null default '', pod text not null default '');
create table if not exists grants (number integer primary key autoincrement, digest text not null unique,
  job_id text not null, devices text not null, steps_done integer not null, floor_ns integer not null,
  state text not null, stopping integer not null, nonce text not null default '', minted_ns integer not null default 0,
  resource text not null default '', bound integer not null default 1, pod text,
  terms text not null default '[]');
create table if not exists slots (slot text primary key, device text not null unique);
create table if not exists progress (number integer primary key autoincrement, job_id text not null unique,
  steps_done integer not null);
"""
_EVENT = "at_ns, kind, job_id, steps_done, from_step, detail, sequence, wall_ns, namespace, pod"


class SqliteEventLog:
    """The embedded store: one file per node. Raises ClusterError if the file can't be used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with contextlib.ExitStack() as undo:
            try:
                self._db = sqlite3.connect(path, isolation_level=None)
                undo.callback(self._db.close)
                self._db.execute("pragma journal_mode=wal")
                self._db.execute("pragma synchronous=off")
                self._prepare()
            except sqlite3.Error as error:
                fix = "move it away to start afresh"
                raise ClusterError(f"{path}: can't use this file as event log: {error}; {fix}") from error
            self.secret = _secret(path.with_name(f"{path.name}.key"))
            undo.pop_all()

    def _prepare(self) -> None:
        (version,) = self._db.execute("pragma user_version").fetchone()
        if version not in (0, _VERSION):  # 0: a new file
            raise sqlite3.DatabaseError(f"another emugpu wrote it (version {version}, not {_VERSION})")
        with transaction(self._db):
            for statement in _SCHEMA.split(";"):
                self._db.execute(statement)
            self._db.execute(f"pragma user_version = {_VERSION}")

    def record(self, event: ManagerEvent, grant: Grant) -> ManagerEvent:
        with transaction(self._db):
            cursor = self._db.execute(
                "insert into events (at_ns, kind, job_id, from_step, steps_done, detail, wall_ns, namespace, pod)"
                " values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                _event_row(event),
            )
            self._write_grant(grant)
            self._write_progress(event.job_id, event.steps_done)
        return replace(event, sequence=cursor.lastrowid or 0)

    def _write_grant(self, grant: Grant) -> None:
        self._db.execute(
            "insert into grants (digest, job_id, devices, steps_done, floor_ns, state, stopping, nonce, minted_ns, resource,"
            " bound, pod, terms) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " on conflict (digest) do update set job_id = excluded.job_id, steps_done = excluded.steps_done,"
            " floor_ns = excluded.floor_ns, state = excluded.state, stopping = excluded.stopping, bound = excluded.bound,"
            " pod = excluded.pod",
            _grant_row(grant),
        )

    def _write_progress(self, job_id: str, steps_done: int) -> None:
        cursor = self._db.execute(
            "update progress set steps_done = max(steps_done, ?) where job_id = ?", (steps_done, job_id)
        )
        if not cursor.rowcount:
            self._db.execute("insert into progress (job_id, steps_done) values (?, ?)", (job_id, steps_done))
            self._db.execute(
                "delete from progress where number <= (select max(number) from progress) - ?"
                " and job_id not in (select job_id from grants where state in ('granted', 'attached'))",
                (MAX_JOBS,),
            )

    def after(self, sequence: int) -> Iterator[ManagerEvent]:
        rows = self._db.execute(f"select {_EVENT} from events where sequence > ? order by sequence", (sequence,))
        for row in rows.fetchall():
            yield ManagerEvent(*row)

    def grants(self) -> Iterator[Grant]:
        rows = self._db.execute(
            "select digest, job_id, devices, steps_done, floor_ns, state, stopping, nonce, minted_ns, resource, bound, pod,"
            " terms from grants order by number"
        )
        for digest, job_id, devices, steps_done, floor_ns, state, stopping, *rest in rows.fetchall():
            nonce, minted_ns, resource, bound, pod, terms = rest
            gpus, places = devices_and_places(resource, tuple(json.loads(devices)))
            yield Grant(
                digest=digest,
                job_id=job_id,
                devices=gpus,
                places=places,
                steps_done=steps_done,
                floor_ns=floor_ns,
                state=GrantState(state),
                stopping=bool(stopping),
                logged_steps=steps_done,
                nonce=nonce,
                minted_ns=minted_ns,
                resource=resource,
                bound=bool(bound),
                pod=None if pod is None else PodIdentity(*json.loads(pod)),
                terms=tuple(Terms(*each) for each in json.loads(terms)),
            )

    def slots(self) -> dict[str, str]:
        return dict(self._db.execute("select slot, device from slots").fetchall())

    def write_slots(self, moved: Mapping[str, str]) -> None:
        with transaction(self._db):
            self._db.execute("delete from slots")
            self._db.executemany("insert into slots values (?, ?)", moved.items())

    def forget(self, digests: Iterable[str]) -> None:
        with transaction(self._db):
            self._db.executemany("delete from grants where digest = ?", [(digest,) for digest in digests])

    def forget_events(self, keep: int) -> None:
        """Delete all events but the last `keep`. For a node without a shipper, which would delete them itself."""
        self._db.execute("delete from events where sequence <= (select max(sequence) from events) - ?", (keep,))

    def progress(self, job_id: str) -> int | None:
        row = self._db.execute("select steps_done from progress where job_id = ?", (job_id,)).fetchone()
        return None if row is None else int(row[0])

    def close(self) -> None:
        self._db.close()


def _event_row(event: ManagerEvent) -> tuple[str | int, ...]:
    return (
        event.at_ns,
        event.kind,
        event.job_id,
        event.from_step,
        event.steps_done,
        event.detail,
        event.wall_ns,
        event.namespace,
        event.pod,
    )


def _grant_row(grant: Grant) -> tuple[str | int | None, ...]:
    pod = None if grant.pod is None else json.dumps(astuple(grant.pod))
    return (
        grant.digest,
        grant.job_id,
        json.dumps(grant.ids),
        grant.steps_done,
        grant.floor_ns,
        str(grant.state),
        grant.stopping,
        grant.nonce,
        grant.minted_ns,
        grant.resource,
        grant.bound,
        pod,
        json.dumps([astuple(each) for each in grant.terms]),
    )


def _secret(path: Path) -> bytes:
    """Read the key, or create it from 32 random bytes. `write_whole` renames a complete file, so the key is never
    partial."""
    try:
        with contextlib.suppress(FileNotFoundError):
            return path.read_bytes()
        write_whole(path, secrets.token_bytes(32), sync=False, mode=0o600)
        return path.read_bytes()
    except OSError as error:
        fix = "give it to this process to read and write"
        raise ClusterError(f"{path}: can't use this file as event log's key: {error.strerror}; {fix}") from error
