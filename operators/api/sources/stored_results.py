"""Reads the results store for the API: its changes, once a second, and one job's events on request.

The jobs controller owns the store and may be unavailable: then the API shows the data of Kubernetes alone, and says so.
"""

from __future__ import annotations

import threading

from emulator_runtime.domain.errors import ClusterError
from operators.api.model.snapshot import Progress
from operators.api.sources.emujobs import JobRecord, progress_of, record_of_result
from operators.results.facts_and_result import JobResult
from operators.results.schema import left_out
from operators.results_feed.feed import BEGINNING, Changes, ResultsFeed


class StoredResults:
    """All jobs of the store. Its methods block: call them in a thread."""

    def __init__(self, feed: ResultsFeed) -> None:
        self._feed = feed
        self._lock = threading.Lock()
        self._store, self._version = "", BEGINNING
        self._damaged: frozenset[str] = frozenset()
        self.jobs: dict[str, JobRecord] = {}
        """By uid. Replaced after each change and never modified, so that other threads may read it."""
        self.problem = f"{feed.place}: the results store has not been read yet; try again"
        """Why `jobs` may be out of date; empty: it isn't."""

    def refresh(self) -> bool:
        """Reads the changes; returns whether there were any."""
        with self._lock:
            before = self.jobs, self.problem
            try:
                self._read()
                self.problem = self._damage()
            except ClusterError as error:
                self._version = BEGINNING  # read from the beginning: the store may be replaced meanwhile
                self.problem = str(error)
            return before != (self.jobs, self.problem)

    def history(self, uid: str) -> tuple[JobResult | None, list[Progress]]:
        """The job's result, None if the store has none, and its progress, empty once its events were deleted.

        Raises ClusterError if the store, or its record of this job, can't be read.
        """
        history = self._feed.history(uid)
        return history.result, progress_of(history.events)

    def _read(self) -> None:
        """Reads all pages of changes; all jobs if the store is another one or was created anew."""
        since, jobs, damaged = self._version, dict(self.jobs), set(self._damaged)
        more = True
        while more:
            page = self._feed.changes(since)
            if since != BEGINNING and (page.store != self._store or page.version < since):
                since = BEGINNING
                continue
            if since == BEGINNING:
                self._store, jobs, damaged = page.store, {}, set()
            _apply(page, jobs, damaged)
            since, more = page.version, page.more
        if jobs != self.jobs:
            self.jobs = jobs
        self._version, self._damaged = since, frozenset(damaged)

    def _damage(self) -> str:
        """The problem of damaged records; jobs that have been deleted since don't count."""
        for uid in self._damaged:
            try:
                self._feed.history(uid)
                self._damaged -= {uid}
            except ClusterError:
                continue
        return str(left_out(self._feed.place, self._damaged)) if self._damaged else ""


def _apply(page: Changes, jobs: dict[str, JobRecord], damaged: set[str]) -> None:
    for result, prediction in page.results:
        jobs[result.facts.uid] = record_of_result(result, prediction)
    for uid in (*page.gone, *page.damaged):
        jobs.pop(uid, None)
    damaged.difference_update(page.gone, (result.facts.uid for result, _ in page.results))
    damaged.update(page.damaged)
