"""The operator's own store: what it has heard of jobs, in one SQLite file that survives it and Redis.

Events are written together with how far their stream was read, in one transaction: whatever moment the operator is killed
at, each event is in here once, and what isn't in here wasn't acknowledged. Results are computed from the events whenever
they are asked for; of jobs that ended long ago only the result stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

from operators.results.events import JobEvent
from operators.results.job import JobFacts, JobResult, merged, to_json
from operators.results.predicted import Prediction
from operators.results.reading import EVENT_COLUMNS, FACT_COLUMNS, ResultReader
from operators.results.schema import opened
from operators.results.thinning import thinned
from sharing_manager.event_log import transaction

Id = tuple[int, int]
"""Epoch and sequence of a stream's entry."""
_PLACE = "stream = ? and epoch = ? and sequence = ?"


@dataclass(frozen=True, slots=True)
class Batch:
    """What was read of the streams: events, and ids of entries that were deleted before anybody read them."""

    events: tuple[JobEvent, ...] = ()
    unread: tuple[tuple[str, Id], ...] = ()

    def reached(self) -> Mapping[str, Id]:
        """Per stream of Redis the newest id."""
        newest: dict[str, Id] = {}
        events = (event for event in self.events if not event.from_kubernetes)
        places = [(event.stream, (event.epoch, event.sequence)) for event in events]
        for stream, entry_id in (*places, *self.unread):
            newest[stream] = max(entry_id, newest.get(stream, entry_id))
        return newest


class ResultStore(ResultReader):
    """A reader that also writes. Raises ClusterError where the file can't be used; calls raise sqlite3.Error."""

    def __init__(self, path: Path) -> None:
        super().__init__(opened(path))
        self.path = path

    # --- events ---------------------------------------------------------------------------------------------------------

    def write(self, batch: Batch) -> int:
        """Add what isn't in here yet; answers how many events are new. All of it, or nothing where it raises."""
        with self._writing():
            archived = self._archived({event.job_uid for event in batch.events})
            fresh = [event for event in batch.events if event.job_uid not in archived]
            new = sum(self._add(event) for event in fresh)
            self._db.executemany(
                "insert or ignore into unread values (?, ?, ?)", [(stream, *entry) for stream, entry in batch.unread]
            )
            for stream, (epoch, sequence) in batch.reached().items():
                self._advance(stream, epoch, sequence)
            if new:
                self._changed({event.job_uid for event in fresh})
        return new

    def _add(self, event: JobEvent) -> int:
        columns = f"job_uid, {', '.join(EVENT_COLUMNS)}"
        values = (event.job_uid, *astuple(event))
        marks = ", ".join("?" * len(values))
        return self._db.execute(f"insert or ignore into events ({columns}) values ({marks})", values).rowcount

    def _advance(self, stream: str, epoch: int, sequence: int) -> None:
        self._db.execute(
            "insert into positions values (?, ?, ?) on conflict (stream) do update"
            " set epoch = excluded.epoch, sequence = excluded.sequence"
            " where (excluded.epoch, excluded.sequence) > (positions.epoch, positions.sequence)",
            (stream, epoch, sequence),
        )

    def position(self, stream: str) -> Id | None:
        """The newest id of this stream that is in here; None: nothing of it is."""
        with self._moment():
            row = self._db.execute("select epoch, sequence from positions where stream = ?", (stream,)).fetchone()
            return None if row is None else (row[0], row[1])

    # --- jobs -----------------------------------------------------------------------------------------------------------

    def note_job(self, facts: JobFacts) -> None:
        """What is known of a job now; see `merged`. Of a job whose result was archived nothing changes any more."""
        with self._writing():
            if self._archived({facts.uid}):
                return
            known = self.facts(facts.uid)
            news = facts if known is None else merged(known, facts)
            if news != known:
                row = astuple(news)
                marks = ", ".join("?" * len(row))
                self._db.execute(f"insert or replace into jobs ({', '.join(FACT_COLUMNS)}) values ({marks})", row)
                self._changed({facts.uid})

    # --- predictions ----------------------------------------------------------------------------------------------------

    def note_prediction(self, uid: str, prediction: Prediction) -> Prediction:
        """Keep the prediction made at submission; a later one doesn't replace it. Answers the one that stays."""
        with self._writing():
            row = (uid, *astuple(prediction))
            if self._db.execute("insert or ignore into predictions values (?, ?, ?, ?)", row).rowcount:
                self._changed({uid})
            return self.prediction(uid) or prediction

    def thin(self, uid: str, now_ns: int) -> int:
        """Merge ranges of progress of a job where fewer will do (thinning.py); answers how many events went."""
        with self._writing():
            done = thinned(self._events(uid), now_ns)
            self._db.executemany(f"delete from events where {_PLACE}", [event.place for event in done.gone])
            self._db.executemany(f"delete from events where {_PLACE}", [event.place for event in done.changed])
            for event in done.changed:
                self._add(event)
        return len(done.gone)

    # --- the archive ------------------------------------------------------------------------------------------------------

    def archive(self, results: Iterable[JobResult]) -> None:
        """Keep of these jobs, which have ended, the result only. Their events, should any come again or too late, are not
        taken any more."""
        for result in results:
            uid = result.facts.uid
            with self._writing():
                row = (uid, result.finished_ns, to_json(result))
                self._db.execute("insert or replace into results values (?, ?, ?)", row)
                self._db.execute("delete from jobs where uid = ?", (uid,))
                self._db.execute("delete from events where job_uid = ?", (uid,))
                self._changed({uid})

    def drop_orphans(self, before_ns: int) -> None:
        """Delete what was received before this moment and belongs to no job that was noted until now."""
        with self._writing():
            self._db.execute(
                "delete from events where received_ns < ? and job_uid not in (select uid from jobs)", (before_ns,)
            )

    def forget(self, before_ns: int, most: int) -> list[str]:
        """Delete the archived results of jobs that ended before this moment, and the oldest of more than `most`; answers
        which (uids). They are not taken up again, as long as Redis or Kubernetes don't tell of them any more."""
        rank = "select uid from results order by finished_ns desc, uid limit -1 offset ?"
        with self._writing():
            rows = self._db.execute(
                f"select uid from results where finished_ns < ? or uid in ({rank})", (before_ns, most)
            ).fetchall()
            if rows:
                self._changed({""})  # no job has this uid, and the version must grow though numbers go
            for table in ("results", "predictions", "changes"):
                self._db.executemany(f"delete from {table} where uid = ?", rows)
        return [uid for (uid,) in rows]

    def _archived(self, uids: Iterable[str]) -> set[str]:
        return {uid for uid in uids if self._db.execute("select 1 from results where uid = ?", (uid,)).fetchone()}

    # --- writing --------------------------------------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock, transaction(self._db):
            yield

    def _changed(self, uids: Iterable[str]) -> None:
        number = self.version() + 1
        self._db.executemany("insert or replace into changes values (?, ?)", [(uid, number) for uid in sorted(uids)])
