"""The operator's own store: what it has heard of jobs, in one SQLite file that survives it and Redis.

Events are written together with how far their stream was read, in one transaction: whatever moment the operator is killed
at, each event is in here once, and what isn't in here wasn't acknowledged. Results are computed from the events whenever
they are asked for; of jobs that ended long ago only the result stays.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from emulator_runtime.domain.errors import InputError
from operators.results.archive import from_json, to_json
from operators.results.clocks import ClockOffset, Clocks
from operators.results.events import JobEvent
from operators.results.predicted import ExperimentPrediction, Prediction
from operators.results.schema import opened
from operators.results.timeline import JobFacts, JobResult, job_result, merged
from sharing_manager.event_log import transaction

Id = tuple[int, int]
"""Epoch and sequence of a stream's entry."""
_EVENT = tuple(field.name for field in fields(JobEvent))
_FACTS = tuple(field.name for field in fields(JobFacts))
_OFFSETS_PER_NODE = 1000
"""Measurements that are kept of each node: half a week of one every five minutes."""


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


class ResultStore:
    """One connection, for one thread; another thread opens the file once more. Raises ClusterError where it can't be used."""

    def __init__(self, path: Path) -> None:
        self._db = opened(path)

    def close(self) -> None:
        self._db.close()

    # --- events ---------------------------------------------------------------------------------------------------------

    def write(self, batch: Batch) -> int:
        """Add what isn't in here yet; answers how many events are new. All of it, or nothing where it raises."""
        with transaction(self._db):
            archived = self._archived({event.job_uid for event in batch.events})
            before = self._db.total_changes
            self._db.executemany(
                f"insert or ignore into events (job_uid, {', '.join(_EVENT)}) values (?{', ?' * len(_EVENT)})",
                [(e.job_uid, *astuple(e)) for e in batch.events if e.job_uid not in archived],
            )
            new = self._db.total_changes - before
            self._db.executemany(
                "insert or ignore into unread values (?, ?, ?)", [(stream, *entry) for stream, entry in batch.unread]
            )
            for stream, (epoch, sequence) in batch.reached().items():
                self._advance(stream, epoch, sequence)
        return new

    def _advance(self, stream: str, epoch: int, sequence: int) -> None:
        self._db.execute(
            "insert into positions values (?, ?, ?) on conflict (stream) do update"
            " set epoch = excluded.epoch, sequence = excluded.sequence"
            " where (excluded.epoch, excluded.sequence) > (positions.epoch, positions.sequence)",
            (stream, epoch, sequence),
        )

    def position(self, stream: str) -> Id | None:
        """The newest id of this stream that is in here; None: nothing of it is."""
        row = self._db.execute("select epoch, sequence from positions where stream = ?", (stream,)).fetchone()
        return None if row is None else (row[0], row[1])

    def events(self, uid: str) -> list[JobEvent]:
        rows = self._db.execute(f"select {', '.join(_EVENT)} from events where job_uid = ?", (uid,))
        return [JobEvent(*row) for row in rows]

    def unread(self) -> int:
        """Events that were deleted before they could be read: a gap that is known."""
        return int(self._db.execute("select count(*) from unread").fetchone()[0])

    # --- jobs -----------------------------------------------------------------------------------------------------------

    def note_job(self, facts: JobFacts) -> None:
        """What is known of a job now; see `merged`. Of a job whose result was archived nothing changes any more."""
        with transaction(self._db):
            if self._archived({facts.uid}):
                return
            known = self.job(facts.uid)
            row = astuple(facts if known is None else merged(known, facts))
            self._db.execute(
                f"insert or replace into jobs ({', '.join(_FACTS)}) values (?{', ?' * (len(row) - 1)})", row
            )

    def job(self, uid: str) -> JobFacts | None:
        return next(iter(self._jobs("where uid = ?", uid)), None)

    def jobs(self) -> list[JobFacts]:
        """All of them, in order of submission; of those whose events were deleted only the result is left."""
        return self._jobs("order by submitted_ns, uid")

    def _jobs(self, which: str, *values: str) -> list[JobFacts]:
        return [JobFacts(*row) for row in self._db.execute(f"select {', '.join(_FACTS)} from jobs {which}", values)]

    # --- clocks ---------------------------------------------------------------------------------------------------------

    def note_offset(self, offset: ClockOffset) -> None:
        with transaction(self._db):
            self._db.execute("insert or replace into offsets values (?, ?, ?, ?)", astuple(offset))
            self._db.execute(
                "delete from offsets where node = ?1 and measured_ns not in"
                " (select measured_ns from offsets where node = ?1 order by measured_ns desc limit ?2)",
                (offset.node, _OFFSETS_PER_NODE),
            )

    def clocks(self) -> Clocks:
        return Clocks(ClockOffset(*row) for row in self._db.execute("select * from offsets"))

    # --- predictions ----------------------------------------------------------------------------------------------------

    def note_prediction(self, uid: str, prediction: Prediction) -> Prediction:
        """Keep the prediction made at submission; a later one doesn't replace it. Answers the one that stays."""
        with transaction(self._db):
            self._db.execute("insert or ignore into predictions values (?, ?, ?, ?)", (uid, *astuple(prediction)))
        return self.prediction(uid) or prediction

    def prediction(self, uid: str) -> Prediction | None:
        row = self._db.execute("select seconds, by, at_ns from predictions where uid = ?", (uid,)).fetchone()
        return None if row is None else Prediction(*row)

    def note_experiment(self, prediction: ExperimentPrediction) -> None:
        """Keep what was predicted for an experiment; its former prediction by the same policy is replaced as a whole."""
        name, by, at_ns = prediction.experiment, prediction.by, prediction.at_ns
        with transaction(self._db):
            self._db.execute("delete from experiments where experiment = ? and by = ?", (name, by))
            rows = [(name, by, job, seconds, at_ns) for job, seconds in prediction.seconds.items()]
            self._db.executemany("insert into experiments values (?, ?, ?, ?, ?)", rows)

    def experiment(self, experiment: str, by: str) -> ExperimentPrediction | None:
        select = "select job, seconds, at_ns from experiments where experiment = ? and by = ?"
        rows = self._db.execute(select, (experiment, by)).fetchall()
        return ExperimentPrediction(experiment, by, rows[0][2], {job: s for job, s, _ in rows}) if rows else None

    # --- results --------------------------------------------------------------------------------------------------------

    def result(self, uid: str) -> JobResult:
        """What is observed of the job until now. Raises InputError for a job that was never noted."""
        row = self._db.execute("select result from results where uid = ?", (uid,)).fetchone()
        if row is not None:
            return from_json(row[0])
        facts = self.job(uid)
        if facts is None:
            raise InputError(f"Job {uid}", "isn't in the operator's store; note it before its result is asked for")
        return job_result(facts, self.events(uid), self.clocks())

    def archived(self) -> list[JobResult]:
        """The results whose events were deleted, by their end."""
        return [from_json(row[0]) for row in self._db.execute("select result from results order by finished_ns, uid")]

    def archive(self, before_ns: int) -> int:
        """Of jobs that ended before this moment keep the result only; answers of how many. Their events, should any come
        again or too late, are not taken any more; nor is what belongs to no job that was noted kept that long."""
        ended = [
            result for result in map(self.result, self._not_archived()) if (result.finished_ns or before_ns) < before_ns
        ]
        for result in ended:
            uid = result.facts.uid
            with transaction(self._db):
                row = (uid, result.finished_ns, to_json(result))
                self._db.execute("insert or replace into results values (?, ?, ?)", row)
                self._db.execute("delete from jobs where uid = ?", (uid,))
                self._db.execute("delete from events where job_uid = ?", (uid,))
        self._db.execute(
            "delete from events where received_ns < ? and job_uid not in (select uid from jobs)", (before_ns,)
        )
        return len(ended)

    def _not_archived(self) -> list[str]:
        return [facts.uid for facts in self.jobs()]

    def _archived(self, uids: Iterable[str]) -> set[str]:
        return {uid for uid in uids if self._db.execute("select 1 from results where uid = ?", (uid,)).fetchone()}


STORE_ERRORS = (sqlite3.Error,)
"""What a full or broken disk raises while the store is in use; opening it raises ClusterError."""
