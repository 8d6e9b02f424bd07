"""The results store as the API reads it: what has changed, once a second, and one job's events when they are asked for.

The jobs controller owns the store and may start later or be away: then the API shows what Kubernetes alone knows, and says so.
"""

from __future__ import annotations

import threading

from emulator_runtime.domain.errors import ClusterError
from operators.api.model.snapshot import Progress
from operators.api.sources.emujobs import Seen, of_result, progress_of
from operators.results.job import JobResult
from operators.results.schema import left_out
from operators.results_feed.feed import BEGINNING, Changes, ResultsFeed


class StoredResults:
    """All jobs of the store. Its methods block: call them in a thread."""

    def __init__(self, feed: ResultsFeed) -> None:
        self._feed = feed
        self._lock = threading.Lock()
        self._store, self._version = "", BEGINNING
        self._damaged: frozenset[str] = frozenset()
        self.jobs: dict[str, Seen] = {}
        """By uid; replaced after each change and never changed, so that another thread may read it."""
        self.problem = f"{feed.place}: the results store was not read yet; try again"
        """Why what is shown may be old; empty while all is well."""

    def look(self) -> bool:
        """Read what has changed; whether anything has."""
        with self._lock:
            before = self.jobs, self.problem
            try:
                self._read()
                self.problem = self._damage()
            except ClusterError as error:
                self._version = BEGINNING  # read again from the beginning: the store may be another one then
                self.problem = str(error)
            return before != (self.jobs, self.problem)

    def history(self, uid: str) -> tuple[JobResult | None, list[Progress]]:
        """What the store knows of this job, None: nothing; and its progress, empty where its events were archived.

        Raises ClusterError where the store, or its record of this job, can't be read.
        """
        history = self._feed.history(uid)
        return history.result, progress_of(history.events)

    def _read(self) -> None:
        """All pages of changes since the last look; everything, where the store is another one or began anew."""
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
        """What to say of jobs whose records are damaged; those that were deleted since are forgotten."""
        for uid in self._damaged:
            try:
                self._feed.history(uid)
                self._damaged -= {uid}
            except ClusterError:
                continue
        return str(left_out(self._feed.place, self._damaged)) if self._damaged else ""


def _apply(page: Changes, jobs: dict[str, Seen], damaged: set[str]) -> None:
    for result, prediction in page.results:
        jobs[result.facts.uid] = of_result(result, prediction)
    for uid in (*page.gone, *page.damaged):
        jobs.pop(uid, None)
    damaged.difference_update(page.gone, (result.facts.uid for result, _ in page.results))
    damaged.update(page.damaged)
