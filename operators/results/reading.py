"""Reads the results store without writing to it: for the results feed, tests and scripts.

The file is SQLite in WAL mode, so that readers and the writer don't wait for each other. A reader needs the same volume and
user as the writer, and may write to the volume: SQLite keeps which reader is where in a file beside it (sqlite.org/wal.html,
"Read-Only Databases"). schema.py describes the tables.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

from emulator_runtime.domain.errors import ClusterError
from operators.results.computing import job_result, own_events
from operators.results.events import JobEvent
from operators.results.facts_and_result import JobFacts, JobResult, from_json
from operators.results.predicted import Prediction
from operators.results.schema import opened_to_read

EVENT_COLUMNS = tuple(field.name for field in fields(JobEvent))
FACT_COLUMNS = tuple(field.name for field in fields(JobFacts))


class ResultReader:
    """One connection that any thread may use; calls wait for each other. Each call sees the store at one moment.

    Calls raise sqlite3.Error if the disk or the file fails.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._lock = threading.RLock()
        self.damaged: frozenset[str] = frozenset()
        """Jobs (uids) whose archived results could not be read when they were asked for last: they are left out."""

    @classmethod
    def open(cls, path: Path) -> ResultReader:
        """Open read-only. Raises ClusterError if there is no store at `path` yet, or none that can be read."""
        return cls(opened_to_read(path))

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            self._db.close()

    # --- results --------------------------------------------------------------------------------------------------------

    def jobs(self) -> list[JobResult]:
        """The results of all noted jobs, running or ended, in order of submission."""
        with self._moment():
            present = [job_result(facts, self._events(facts.uid)) for facts in self.noted()]
            return sorted([*self.archived(), *present], key=lambda r: (r.facts.submitted_ns, r.facts.uid))

    def job(self, uid: str) -> JobResult | None:
        """The result of the job so far; None for a job that was never noted, or is in `damaged` now."""
        with self._moment():
            row = self._db.execute("select result from results where uid = ?", (uid,)).fetchone()
            self.damaged -= {uid}
            if row is not None:
                return self._unpacked(uid, row[0])
            facts = self.facts(uid)
            return None if facts is None else job_result(facts, self._events(uid))

    def events(self, uid: str) -> list[JobEvent]:
        """One job's events stream by stream, each in its order. Only events of the job's own namespace count.

        Empty after its result was archived, and for a job that was never noted.
        """
        with self._moment():
            facts = self.facts(uid)
            return own_events(facts, self._events(uid)) if facts is not None else []

    def archived(self) -> list[JobResult]:
        """The results whose events were deleted, by their end."""
        with self._moment():
            self.damaged = frozenset()
            rows = self._db.execute("select uid, result from results order by finished_ns, uid")
            found = [self._unpacked(*row) for row in rows]
            return [result for result in found if result is not None]

    def _unpacked(self, uid: str, text: str) -> JobResult | None:
        try:
            return from_json(text)
        except ClusterError:
            self.damaged |= {uid}
            return None

    # --- what changes -----------------------------------------------------------------------------------------------------

    def version(self) -> int:
        """A number that grows whenever a job's result or prediction may have changed."""
        with self._moment():
            return int(self._db.execute("select coalesce(max(number), 0) from changes").fetchone()[0])

    def changes_page(self, version: int, most: int) -> tuple[int, list[str], bool]:
        """At most about `most` of the jobs (uids) that changed after `version`, the version up to which these are all changes,
        and whether there are more. Jobs that changed together are never divided between pages."""
        with self._moment():
            select = "select uid, number from changes where uid <> '' and number > ? order by number, uid limit ?"
            rows = self._db.execute(select, (version, most)).fetchall()
            if len(rows) < most:
                return self.version(), [uid for uid, _ in rows], False
            last_uid, last = rows[-1]
            rest = self._db.execute("select uid from changes where number = ? and uid > ?", (last, last_uid))
            return last, [*(uid for uid, _ in rows), *(uid for (uid,) in rest)], True

    # --- predictions ----------------------------------------------------------------------------------------------------

    def predictions(self) -> dict[str, Prediction]:
        """The prediction that was made at the submission of each job, by uid."""
        with self._moment():
            rows = self._db.execute("select uid, seconds, by, at_ns from predictions")
            return {uid: Prediction(*prediction) for uid, *prediction in rows}

    def prediction(self, uid: str) -> Prediction | None:
        with self._moment():
            row = self._db.execute("select seconds, by, at_ns from predictions where uid = ?", (uid,)).fetchone()
            return None if row is None else Prediction(*row)

    # --- what results are made of -----------------------------------------------------------------------------------------

    def facts(self, uid: str) -> JobFacts | None:
        """The facts of a job that isn't archived."""
        return next(iter(self._noted("where uid = ?", uid)), None)

    def noted(self) -> list[JobFacts]:
        """The facts of all jobs that aren't archived, in order of submission."""
        return self._noted("order by submitted_ns, uid")

    def unread(self) -> int:
        """Number of events that were deleted before they could be read: a known gap."""
        with self._moment():
            return int(self._db.execute("select count(*) from unread").fetchone()[0])

    def _noted(self, which: str, *values: str) -> list[JobFacts]:
        with self._moment():
            rows = self._db.execute(f"select {', '.join(FACT_COLUMNS)} from jobs {which}", values)
            return [JobFacts(*row) for row in rows]

    def _events(self, uid: str) -> list[JobEvent]:
        select = f"select {', '.join(EVENT_COLUMNS)} from events where job_uid = ? order by stream, epoch, sequence"
        return [JobEvent(*row) for row in self._db.execute(select, (uid,))]

    @contextmanager
    def _moment(self) -> Iterator[None]:
        """All reads inside see one state of the store; nested in another one, or in a write, they see that one's."""
        with self._lock:
            if self._db.in_transaction:
                yield
                return
            self._db.execute("begin")
            try:
                yield
            finally:
                self._db.execute("rollback")
