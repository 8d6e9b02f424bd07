"""The operator's store as the API reads it: what has changed, once a second, and one job's events when they are asked for.

The store is made by the controller, which may start later, and it may be away altogether: then there is less to tell, and
what Kubernetes knows is told all the same.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from emulator_runtime.domain.errors import ClusterError
from operators.api.facts import Progress
from operators.api.sources.emujobs import Seen, of_result, progress_of
from operators.results.job import JobResult
from operators.results.reading import ResultReader

Opener = Callable[[Path], ResultReader]


class StoredResults:
    """All jobs of the store. Its methods take time: call them in a thread, one at a time."""

    def __init__(self, path: Path, opener: Opener = ResultReader.open) -> None:
        self._path, self._opener = path, opener
        self._reader: ResultReader | None = None
        self._version = -1
        self.jobs: dict[str, Seen] = {}
        """By uid; another dictionary after each change, so that a thread may read it while this one looks."""
        self.problem = ""
        """Why what is told may be old; empty while all is well."""

    def look(self) -> bool:
        """Read what has changed; whether anything has."""
        before = self.problem
        try:
            found = self._changed()
            self.problem = ""
        except (ClusterError, sqlite3.Error) as error:
            self._close()
            self.problem, found = f"the operator's store can't be read: {error}", None
        if found is not None:
            self.jobs = found
        return found is not None or self.problem != before

    def result(self, uid: str) -> JobResult | None:
        """What the store knows of this job; None: nothing."""
        try:
            return None if self._reader is None else self._reader.job(uid)
        except sqlite3.Error:
            return None

    def progress(self, uid: str) -> list[Progress]:
        """How far it was when; nothing of jobs whose events were archived."""
        try:
            return [] if self._reader is None else progress_of(self._reader.events(uid), self._reader.clocks())
        except sqlite3.Error:
            return []

    def _changed(self) -> dict[str, Seen] | None:
        reader = self._reader = self._reader or self._opener(self._path)
        version = reader.version()
        if version == self._version:
            return None
        if version < self._version or self._version < 0:
            predictions = reader.predictions()
            found = {r.facts.uid: of_result(r, predictions.get(r.facts.uid)) for r in reader.jobs()}
        else:
            found = dict(self.jobs)
            for uid in reader.changed_since(self._version):
                result = reader.job(uid)
                if result is None:
                    found.pop(uid, None)
                else:
                    found[uid] = of_result(result, reader.prediction(uid))
        self._version = version
        return found

    def _close(self) -> None:
        """A store that was moved away or made anew is opened again, from its beginning."""
        if self._reader is not None:
            self._reader.close()
        self._reader, self._version = None, -1
