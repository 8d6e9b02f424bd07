"""The operator's store as the API reads it: what has changed, once a second, and one job's events when they are asked for.

The store is made by the controller, which may start later, and it may be away altogether: then there is less to tell, and
what Kubernetes knows is told all the same.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from emulator_runtime.domain.errors import ClusterError
from operators.api.model.snapshot import Progress
from operators.api.sources.emujobs import Seen, of_result, progress_of
from operators.results.job import JobResult
from operators.results.reading import ResultReader
from operators.results.schema import left_out, unreadable

Opener = Callable[[Path], ResultReader]


class StoredResults:
    """All jobs of the store. Its methods take time: call them in a thread; one waits for another."""

    def __init__(self, path: Path, opener: Opener = ResultReader.open) -> None:
        self._path, self._opener = path, opener
        self._lock = threading.Lock()
        self._reader: ResultReader | None = None
        self._version = -1
        self._place: tuple[int, int] | None = None
        self.jobs: dict[str, Seen] = {}
        """By uid; another dictionary after each change, so that a thread may read it while this one looks."""
        self.problem = f"{path}: the operator's store was not read yet; try again"
        """Why what is told may be old; empty while all is well."""

    def look(self) -> bool:
        """Read what has changed; whether anything has."""
        with self._lock:
            return self._look()

    def _look(self) -> bool:
        before = self.problem
        try:
            found, damaged = self._changed()
            self.problem = str(left_out(self._path, damaged)) if damaged else ""
        except (ClusterError, sqlite3.Error) as error:
            self._close()
            self.problem, found = self._said(error), None
        if found is not None:
            self.jobs = found
        return found is not None or self.problem != before

    def told(self, uid: str) -> tuple[JobResult | None, list[Progress]]:
        """What the store knows of this job, None: nothing; and how far it was when, nothing of jobs whose events were archived.

        Raises ClusterError where the store, or what is in it of this job, can't be read.
        """
        with self._lock:
            reader = self._reader
            if reader is None:
                raise ClusterError(self.problem)
            try:
                result, progress = reader.job(uid), progress_of(reader.events(uid))
            except (ClusterError, sqlite3.Error) as error:
                raise ClusterError(self._said(error)) from error
            if uid in reader.damaged:
                raise left_out(self._path, [uid])
            return result, progress

    def _said(self, error: ClusterError | sqlite3.Error) -> str:
        """One sentence with the place and the fix, whether it was found at the opening or later."""
        return str(unreadable(self._path, error) if isinstance(error, sqlite3.Error) else error)

    def _changed(self) -> tuple[dict[str, Seen] | None, frozenset[str]]:
        """The jobs, if any have changed, and those whose results are damaged."""
        place = self._place_now()
        if place != self._place:  # moved away, and made anew or not: an open one would not notice
            self._close()
            self._place = place
        reader = self._reader = self._reader or self._opener(self._path)
        for uid in reader.damaged:  # deleted since?
            reader.job(uid)
        version = reader.version()
        if version == self._version:
            return None, reader.damaged
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
        return found, reader.damaged

    def _place_now(self) -> tuple[int, int] | None:
        """Which file there is; None: none."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _close(self) -> None:
        """Opened again, it is read from its beginning."""
        if self._reader is not None:
            self._reader.close()
        self._reader, self._version = None, -1
