"""The threads beside the controller while it leads: the collector and the results.

Each has a connection to the store of its own. They start with the lease and end before it is given up, because two readers would
take events away from each other.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry

from operators.jobs.settings import Settings
from operators.results.collector import Collector, Hooks
from operators.results.keeper import Keeping, ResultKeeper
from operators.results.metrics import CollectorMetrics, ResultMetrics
from operators.results.store import ResultStore
from operators.results_feed.feed import StoreFeed
from sharing_manager.store.client import client_of, place_of

_STOP_S = 3.0


@dataclass(frozen=True, slots=True)
class Clocks:
    """The wall clock, and one for durations; nanoseconds."""

    wall_ns: Callable[[], int]
    monotonic_ns: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Links:
    """Callbacks of the threads: whether this replica leads, and the jobs (uids) whose outcome has changed."""

    leads: Callable[[], bool]
    changed: Callable[[Collection[str]], None]


class Recording:
    """`start`, `stop`; `results` may be used at any time."""

    def __init__(self, settings: Settings, registry: CollectorRegistry, clocks: Clocks, links: Links) -> None:
        self._undo = ExitStack()
        self._path = Path(settings.store) if settings.store else None
        self._owner = settings.identity
        keeping = Keeping(settings.keep_events_s, settings.keep_results_s, settings.keep_results)
        url = settings.redis_url
        changed, log = links.changed, bool(url)
        self.results = ResultKeeper(
            self._opened,
            ResultMetrics(registry),
            clocks.wall_ns,
            clocks.monotonic_ns,
            changed=changed,
            keeping=keeping,
            log=log,
        )
        self._collector: Collector | None = None
        if url:
            client = client_of(url, settings.variable("redis_url"))
            self._undo.callback(client.close)
            metrics, hooks = CollectorMetrics(registry), Hooks(self.results.stored, links.leads)
            self._collector = Collector(client, place_of(url), self._opened, metrics, clocks.wall_ns, hooks=hooks)

    @property
    def log_connected(self) -> bool:
        """Whether events of jobs arrive at present, so that waiting for one makes sense; true before the first read."""
        return not (self._collector is not None and self._collector.away) and not self.results.problem

    def feed(self) -> StoreFeed | None:
        """The store as others may read it; None before `start`."""
        return StoreFeed(self._path, self._owner) if self._path is not None else None

    def start(self) -> None:
        if self._collector is None:
            variable = Settings.variable("redis_url")
            effect = "times come from Kubernetes, in whole seconds, and progress is known at the end only"
            print(f"jobs: {variable} is empty: {effect}", file=sys.stderr, flush=True)
        if self._path is None:
            directory = self._undo.enter_context(tempfile.TemporaryDirectory(prefix="emugpu-jobs-"))
            self._path = Path(directory) / "results.db"
        for part in (self.results, self._collector):
            if part is not None:
                part.start()

    def stop(self) -> None:
        """Idempotent. Unfinished work is repeated after the next start."""
        parts = [part for part in (self._collector, self.results) if part is not None]
        for timeout_s in (0.0, _STOP_S):  # all are asked to stop before the first wait
            for part in parts:
                part.stop(timeout_s)
        self._undo.close()

    def _opened(self) -> ResultStore:
        assert self._path is not None  # threads run after `start`
        return ResultStore(self._path)
