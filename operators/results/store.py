"""The operator's results store: one SQLite file that survives the operator and Redis.

Events and the position in their stream are written in one transaction: whenever the operator is killed, each event is in the
store once, and events that aren't in it weren't acknowledged. Results are computed from the events on demand; of jobs that ended
long ago only the result stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

from emulator_runtime.sqlite import transaction
from operators.results.events import JobEvent
from operators.results.facts_and_result import JobFacts, JobResult, merged, to_json
from operators.results.predicted import Prediction
from operators.results.reading import EVENT_COLUMNS, FACT_COLUMNS, ResultReader
from operators.results.schema import opened
from operators.results.thinning import thinned

Id = tuple[int, int]
"""Epoch and sequence of a stream's entry."""
_PLACE = "stream = ? and epoch = ? and sequence = ?"


@dataclass(frozen=True, slots=True)
class Batch:
    """One read of the streams: events, and ids of entries that were deleted before they could be read."""

    events: tuple[JobEvent, ...] = ()
    unread: tuple[tuple[str, Id], ...] = ()

    def reached(self) -> Mapping[str, Id]:
        """The newest id of each stream of Redis."""
        newest: dict[str, Id] = {}
        events = (event for event in self.events if not event.from_kubernetes)
        places = [(event.stream, (event.epoch, event.sequence)) for event in events]
        for stream, entry_id in (*places, *self.unread):
            newest[stream] = max(entry_id, newest.get(stream, entry_id))
        return newest


class ResultStore(ResultReader):
    """A reader that also writes. Raises ClusterError if the file can't be used; calls raise sqlite3.Error."""

    def __init__(self, path: Path) -> None:
        super().__init__(opened(path))
        self.path = path

    # --- events ---------------------------------------------------------------------------------------------------------

    def write(self, batch: Batch) -> int:
        """Add the events that aren't in the store yet; returns their number. If it raises, nothing is written."""
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
        """The newest id of this stream in the store; None: it has none."""
        with self._moment():
            row = self._db.execute("select epoch, sequence from positions where stream = ?", (stream,)).fetchone()
            return None if row is None else (row[0], row[1])

    # --- jobs -----------------------------------------------------------------------------------------------------------

    def note_job(self, facts: JobFacts) -> None:
        """The present facts of a job, merged with the stored ones (see `merged`). An archived job doesn't change any more."""
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
        """Keep the prediction made at submission; a later one doesn't replace it. Returns the kept one."""
        with self._writing():
            row = (uid, *astuple(prediction))
            if self._db.execute("insert or ignore into predictions values (?, ?, ?, ?)", row).rowcount:
                self._changed({uid})
            return self.prediction(uid) or prediction

    def thin(self, uid: str, now_ns: int) -> int:
        """Merge old ranges of progress of a job (thinning.py); returns how many events were removed."""
        with self._writing():
            done = thinned(self._events(uid), now_ns)
            self._db.executemany(f"delete from events where {_PLACE}", [event.place for event in done.gone])
            self._db.executemany(f"delete from events where {_PLACE}", [event.place for event in done.changed])
            for event in done.changed:
                self._add(event)
        return len(done.gone)

    # --- the archive ------------------------------------------------------------------------------------------------------

    def archive(self, results: Iterable[JobResult]) -> None:
        """Keep only the results of these jobs, which have ended. Events of them that arrive later are ignored."""
        for result in results:
            uid = result.facts.uid
            with self._writing():
                row = (uid, result.finished_ns, to_json(result))
                self._db.execute("insert or replace into results values (?, ?, ?)", row)
                self._db.execute("delete from jobs where uid = ?", (uid,))
                self._db.execute("delete from events where job_uid = ?", (uid,))
                self._changed({uid})

    def drop_orphans(self, before_ns: int) -> None:
        """Delete events that were received before this moment and belong to no noted job."""
        with self._writing():
            self._db.execute(
                "delete from events where received_ns < ? and job_uid not in (select uid from jobs)", (before_ns,)
            )

    def forget(self, before_ns: int, most: int) -> list[str]:
        """Delete the archived results of jobs that ended before this moment, and the oldest ones above `most`; returns their
        uids. They are not stored again, unless Redis or Kubernetes report them again."""
        rank = "select uid from results order by finished_ns desc, uid limit -1 offset ?"
        with self._writing():
            rows = self._db.execute(
                f"select uid from results where finished_ns < ? or uid in ({rank})", (before_ns, most)
            ).fetchall()
            if rows:
                self._changed(
                    {""}
                )  # no job has this uid; it keeps the version growing when rows of `changes` are deleted
                known = "select uid from jobs union select uid from results union select ''"
                self._db.execute(f"delete from changes where uid not in ({known})")  # what was forgotten last time
                for table in ("results", "predictions"):
                    self._db.executemany(f"delete from {table} where uid = ?", rows)
                self._changed(uid for (uid,) in rows)  # stays until the next time, so that readers learn of it
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
