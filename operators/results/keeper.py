"""Keeps the result of every job up to date beside the controller.

    controller -- note, tell -->                       --> outcome (controller), histograms
                                  one thread, the store
    collector  -- stored ------>                       --> archive

The controller never waits: its facts are queued, and outcomes were computed before it asks for them. A round that fails is
repeated with all that was queued meanwhile.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from random import Random

from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.retrying import Backoff, keep_running
from operators.results.events import PROGRESS, JobEvent
from operators.results.facts_and_result import SETTLE_S, JobFacts, JobResult
from operators.results.metrics import ResultMetrics
from operators.results.pacing import Pace
from operators.results.predicted import Prediction
from operators.results.schema import left_out
from operators.results.status import Outcome, Stays, fairness, stay_of
from operators.results.store import Batch, ResultStore

TICK_S = 0.5
"""Maximum delay of a computation that is due (host seconds)."""
_REST_S = 10.0
_TIDY_NS = 60 * NS_PER_S
_FOREVER_NS = 2**62


@dataclass(frozen=True, slots=True)
class Keeping:
    """Retention: events of a job for `events_s` seconds after its end, its result for `results_s`, and `results` results at
    most."""

    events_s: float = 3600.0
    results_s: float = 30 * 24 * 3600.0
    results: int = 100_000


@dataclass(slots=True)
class _Inbox:
    """Facts, events and uids that the thread hasn't processed yet."""

    facts: dict[str, tuple[JobFacts, Prediction | None]] = field(default_factory=dict)
    events: list[JobEvent] = field(default_factory=list)
    urgent: set[str] = field(default_factory=set)
    stale: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.facts or self.events or self.urgent or self.stale)

    def after(self, older: _Inbox) -> _Inbox:
        """Both, the older one first."""
        return _Inbox(
            older.facts | self.facts,
            [*older.events, *self.events],
            older.urgent | self.urgent,
            older.stale | self.stale,
        )


class ResultKeeper:
    """Its thread runs from `start` to `stop` and calls `open_store`, and `changed` with the jobs (uids) whose outcome has
    changed.

    `now_ns` is the wall clock, `clock_ns` one for durations. `log`: the managers' events are collected, so that Kubernetes'
    report of an end isn't the last one.
    """

    def __init__(
        self,
        open_store: Callable[[], ResultStore],
        metrics: ResultMetrics,
        now_ns: Callable[[], int],
        clock_ns: Callable[[], int],
        *,
        changed: Callable[[Collection[str]], None] = lambda _: None,
        keeping: Keeping | None = None,
        log: bool = True,
    ) -> None:
        self._open_store, self._metrics, self._now_ns, self._clock_ns = open_store, metrics, now_ns, clock_ns
        self._changed, self._keeping, self._log = changed, keeping or Keeping(), log
        self._news = threading.Condition()
        self._inbox, self._noted = _Inbox(), dict[str, tuple[JobFacts, Prediction | None]]()
        self._shown: dict[str, Outcome] = {}
        self._open: dict[str, JobFacts] = {}
        self._stays = Stays()
        self._looked: dict[str, int] = {}
        self._grown: set[str] = set()
        self._unsettled: dict[str, int] = {}
        self._ended: dict[str, JobResult] = {}
        self._pace, self._tidied_ns = Pace(), 0
        self._store: ResultStore | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="emugpu-results", daemon=True)
        self.cluster_gpus = 0
        """Devices of all nodes, for fairness; set by the controller."""
        self.problem = ""
        """Why results may be out of date; empty if nothing is wrong."""

    # --- for the controller: nothing here waits ---------------------------------------------------------------------------

    def outcome(self, uid: str) -> Outcome | None:
        """The outcome of a job so far; None until it was noted and computed."""
        return self._shown.get(uid)

    def note(self, facts: JobFacts, prediction: Prediction | None = None) -> None:
        """The facts of a job; equal facts are ignored."""
        if self._noted.get(facts.uid) == (facts, prediction):
            return
        with self._news:
            self._inbox.facts[facts.uid] = facts, prediction
            if facts.deleted_ns is None:
                self._noted[facts.uid] = facts, prediction
            self._news.notify()

    def tell(self, events: Iterable[JobEvent]) -> None:
        """Events that Kubernetes reports of a pod; the store ignores those that it has."""
        with self._news:
            self._inbox.events += events
            self._news.notify()

    def open_jobs(self) -> list[JobFacts]:
        """The jobs that haven't ended, including those of earlier processes."""
        with self._news:
            return list(self._open.values())

    def gone(self, uid: str) -> None:
        """The object doesn't exist any more, so nobody asks for its outcome."""
        with self._news:
            self._noted.pop(uid, None)
            self._shown.pop(uid, None)

    # --- for the collector ------------------------------------------------------------------------------------------------

    def stored(self, batch: Batch) -> None:
        """The collector has written these events to the store."""
        with self._news:
            for event in batch.events:
                steps = self._noted[event.job_uid][0].steps if event.job_uid in self._noted else 0
                ends = event.kind != PROGRESS or (steps and event.steps_done >= steps)
                (self._inbox.urgent if ends else self._inbox.stale).add(event.job_uid)
            self._news.notify()

    # --- its life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Idempotent."""
        self._stopping.set()
        with self._news:
            self._news.notify()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def close(self) -> None:
        """Must be called by the thread that made the rounds."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def round(self) -> None:
        """Process all that was queued. Raises sqlite3.Error, ClusterError; then nothing of it is lost."""
        with self._news:
            taken, self._inbox = self._inbox, _Inbox()
        try:
            store = self._opened()
            self._write(store, taken)
            if changed := self._look(store, taken):
                self._changed(changed)
            self._tidy(store)
        except BaseException:
            with self._news:
                self._inbox = self._inbox.after(taken)
            raise
        self.problem = ""
        self._metrics.store_up.set(1)

    def failed(self, error: Exception) -> None:
        """Note the error of a round."""
        self._metrics.store_up.set(0)
        if str(error) != self.problem:
            self.problem = str(error)
            # one write for text and line end: another thread may print at the same time
            print(f"results: {error}; it is tried again\n", end="", file=sys.stderr, flush=True)

    def _run(self) -> None:
        backoff = Backoff(Random("results"))
        try:
            keep_running("the results", lambda: self._work(backoff), self._stopping, backoff, self.failed)
        finally:
            self.close()

    def _work(self, backoff: Backoff) -> None:
        while not self._stopping.is_set():
            self.round()
            backoff.reset()
            with self._news:
                if not self._inbox and not self._stopping.is_set():
                    self._news.wait(TICK_S if self._pace or self._unsettled else _REST_S)

    # --- a round ----------------------------------------------------------------------------------------------------------

    def _opened(self) -> ResultStore:
        if self._store is None:
            store = self._open_store()
            try:
                self._begin(store)
            except BaseException:
                store.close()
                raise
            self._store = store
        return self._store

    def _begin(self, store: ResultStore) -> None:
        """From the store of earlier processes: which jobs are open, and what the histograms had counted."""
        predictions = store.predictions()
        for result in store.jobs():
            self._book(result, predictions.get(result.facts.uid))
        archived = {result.facts.uid for result in store.archived()}
        if store.damaged:
            print(f"results: {left_out(store.path, store.damaged)}", file=sys.stderr, flush=True)
        self._ended = {uid: result for uid, result in self._ended.items() if uid not in archived}

    def _write(self, store: ResultStore, taken: _Inbox) -> None:
        for facts, prediction in taken.facts.values():
            store.note_job(facts)
            if prediction is not None:
                store.note_prediction(facts.uid, prediction)
        if taken.events:
            store.write(Batch(tuple(taken.events)))

    def _look(self, store: ResultStore, taken: _Inbox) -> list[str]:
        """Compute the results that are due; returns the jobs whose outcome has changed."""
        now_ns = self._clock_ns()
        wall_ns = self._now_ns()
        settled = {uid for uid, at_ns in self._unsettled.items() if at_ns <= wall_ns}
        urgent = taken.urgent | set(taken.facts) | {event.job_uid for event in taken.events} | settled
        for uid in taken.stale - urgent:
            self._pace.add(uid, self._looked.get(uid, 0))
        changed = []
        for uid in [*sorted(urgent), *self._pace.due(now_ns)]:
            self._pace.drop(uid)
            if self._look_at(store, uid, now_ns):
                changed.append(uid)
        return changed

    def _look_at(self, store: ResultStore, uid: str, now_ns: int) -> bool:
        result = store.job(uid)
        if result is None:  # the controller hasn't noted this job yet: its events wait in the store
            return False
        self._looked[uid] = now_ns
        self._grown.add(uid)
        settled = self._book(result, store.prediction(uid))
        outcome = Outcome(result, settled, self._fairness(result) if settled else None)
        if uid not in self._noted or self._shown.get(uid) == outcome:
            return False
        self._shown[uid] = outcome
        return True

    def _book(self, result: JobResult, prediction: Prediction | None) -> bool:
        """Note whether the job is open or has ended; returns whether its end is settled."""
        uid, end_ns = result.facts.uid, result.finished_ns
        self._stays.put(uid, stay_of(result, _FOREVER_NS))
        with self._news:
            self._open.pop(uid, None)
            if end_ns is None:
                self._open[uid] = result.facts
        self._unsettled.pop(uid, None)
        if end_ns is None:
            return False
        if self._log and not result.settled(self._now_ns()):
            self._unsettled[uid] = end_ns + round(SETTLE_S * NS_PER_S)
            return False
        self._ended[uid] = result
        self._metrics.ended(result, prediction)
        return True

    def _fairness(self, result: JobResult) -> float | None:
        """By the state of the cluster when it was computed first."""
        before = self._shown.get(result.facts.uid)
        if before is not None and before.fairness is not None:
            return before.fairness
        return fairness(result, self._stays, self.cluster_gpus) if self.cluster_gpus else None

    # --- the archive ------------------------------------------------------------------------------------------------------

    def _tidy(self, store: ResultStore) -> None:
        now_ns = self._clock_ns()
        if self._tidied_ns and now_ns - self._tidied_ns < _TIDY_NS:
            return
        wall_ns = self._now_ns()
        before_ns = wall_ns - round(self._keeping.events_s * NS_PER_S)
        old = [result for result in self._ended.values() if (result.finished_ns or wall_ns) < before_ns]
        store.archive(old)
        for result in old:
            del self._ended[result.facts.uid]
            self._looked.pop(result.facts.uid, None)
        for uid in sorted(self._grown & (self._open.keys() | self._ended.keys())):
            store.thin(uid, wall_ns)
        self._grown.clear()
        store.drop_orphans(before_ns)
        forgotten_ns = wall_ns - round(self._keeping.results_s * NS_PER_S)
        forgotten = store.forget(forgotten_ns, self._keeping.results)
        self._metrics.forget(forgotten)
        self._stays.drop(forgotten)
        for uid in forgotten:
            self._looked.pop(uid, None)
        self._tidied_ns = now_ns
