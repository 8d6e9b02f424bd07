"""The interface of the results feed, and the feed over the store's file.

The jobs controller owns the store (SQLite on its volume). The API runs in another pod under another account, so it reads the
store through this interface: `HttpFeed` there, `StoreFeed` here.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from emulator_runtime.domain.errors import ClusterError
from operators.results.events import JobEvent
from operators.results.facts_and_result import JobResult
from operators.results.predicted import Prediction
from operators.results.reading import ResultReader
from operators.results.schema import left_out, unreadable

PAGE = 250
"""Jobs in one answer: large enough that ten thousand jobs take 40 requests, small enough for a request of a second."""
BEGINNING = -1
"""The version before all versions: all jobs have changed since."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The jobs that have changed after a version.

    `store` names the store; another name, or `version` below the one asked for, means that everything must be read again.
    `version`: for the next request. `results`: of the changed jobs, with their predictions. `gone`: jobs (uids) that the store
    has forgotten. `damaged`: jobs whose archived results can't be read. `more`: there are further changes.
    """

    store: str
    version: int
    results: tuple[tuple[JobResult, Prediction | None], ...] = ()
    gone: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    more: bool = False


@dataclass(frozen=True, slots=True)
class JobHistory:
    """One job: `result` None if the store has none; `events` empty once its result was archived."""

    result: JobResult | None
    events: tuple[JobEvent, ...] = ()


class ResultsFeed(Protocol):
    """Calls block: make them in a thread. They raise ClusterError with the reason and the fix if the store can't be read."""

    place: str
    """Where the store is, for messages."""

    def changes(self, since: int) -> Changes:
        """At most PAGE jobs, in order of their change."""
        ...

    def history(self, uid: str) -> JobHistory: ...


class StoreFeed:
    """ResultsFeed over the file. `owner`: the replica (pod) that owns it; a file of another one is another store."""

    def __init__(self, path: Path, owner: str = "", opener: Callable[[Path], ResultReader] = ResultReader.open) -> None:
        self.place = str(path)
        self._path, self._owner, self._opener = path, owner, opener

    def changes(self, since: int) -> Changes:
        with self._reading() as reader:
            version, uids, more = reader.changes_page(since, PAGE)
            results, gone = [], []
            for uid in uids:
                result = reader.job(uid)
                if result is not None:
                    results.append((result, reader.prediction(uid)))
                elif uid not in reader.damaged:
                    gone.append(uid)
            return Changes(self._name(), version, tuple(results), tuple(gone), tuple(sorted(reader.damaged)), more)

    def history(self, uid: str) -> JobHistory:
        with self._reading() as reader:
            result = reader.job(uid)
            if uid in reader.damaged:
                raise left_out(self._path, [uid])
            return JobHistory(result, tuple(reader.events(uid)))

    @contextmanager
    def _reading(self) -> Iterator[ResultReader]:
        """A connection for one answer: the file may be moved away or replaced at any time."""
        try:
            with closing(self._opener(self._path)) as reader:
                yield reader
        except sqlite3.Error as error:
            raise unreadable(self._path, error) from error

    def _name(self) -> str:
        try:
            status = self._path.stat()
        except OSError as error:
            raise ClusterError(
                f"{self._path}: can't read this file as the operator's store: {error.strerror}"
            ) from error
        return hashlib.sha256(f"{self._owner} {self._path} {status.st_dev} {status.st_ino}".encode()).hexdigest()[:16]
