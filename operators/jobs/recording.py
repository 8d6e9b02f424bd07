"""What the controller runs beside itself while it leads: the collector, the results and the watch of the nodes' clocks.

Each has a thread and a connection to the store of its own. They begin with the lease and end before it is given up, because
two readers would take events away from each other.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry

from operators.jobs.settings import Settings
from operators.results.clock_watch import ClockWatch
from operators.results.clocks import ClockOffset, second_of
from operators.results.collector import Collector, Hooks
from operators.results.metrics import CollectorMetrics, ResultMetrics
from operators.results.results import Keeping, Results
from operators.results.store import ResultStore
from sharing_manager.store.client import client_of, place_of

_STOP_S = 3.0
_FOREVER_S = 100 * 365 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Clocks:
    """The wall clock, and one for durations; nanoseconds."""

    wall_ns: Callable[[], int]
    monotonic_ns: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Links:
    """What the threads call: whether this replica leads, whose outcome (uids) has changed, and node -> address of its manager."""

    leads: Callable[[], bool]
    changed: Callable[[Collection[str]], None]
    managers: Callable[[], Mapping[str, str]]


class Recording:
    """`start`, `stop`; `results` may be asked and told at any time. Raises InputError for a setting that is wrong."""

    def __init__(self, settings: Settings, registry: CollectorRegistry, clocks: Clocks, links: Links) -> None:
        self._undo = ExitStack()
        self._path = Path(settings.store) if settings.store else None
        self._port = settings.whole("managers_port", least=0, most=65535)
        keeping = Keeping(
            settings.whole("keep_events_s", least=0, most=_FOREVER_S),
            settings.whole("keep_results_s", least=0, most=_FOREVER_S),
            settings.whole("keep_results", least=0, most=10**7),
        )
        url, self._links = settings.redis_url, links
        changed, log = links.changed, bool(url)
        times = clocks.wall_ns, clocks.monotonic_ns
        self.results = Results(self._opened, ResultMetrics(registry), *times, changed=changed, keeping=keeping, log=log)
        self._collector: Collector | None = None
        if url:
            client = client_of(url, settings.variable("redis_url"))
            self._undo.callback(client.close)
            metrics, hooks = CollectorMetrics(registry), Hooks(self.results.stored, links.leads)
            self._collector = Collector(client, place_of(url), self._opened, metrics, clocks.wall_ns, hooks=hooks)
        self._clock_watch: ClockWatch | None = None
        if self._port:
            self._clock_watch = ClockWatch(self._addresses, self._note_offset, clocks.wall_ns, ask=second_of)

    @property
    def hears(self) -> bool:
        """Whether what is told of a job comes here now, so that it is worth waiting for; true while nothing was tried yet."""
        return not (self._collector is not None and self._collector.away) and not self.results.problem

    def start(self) -> None:
        if self._collector is None:
            variable = Settings.variable("redis_url")
            told = "times come from Kubernetes, in whole seconds, and progress is known at the end only"
            print(f"jobs: {variable} is empty: {told}", file=sys.stderr, flush=True)
        if self._path is None:
            directory = self._undo.enter_context(tempfile.TemporaryDirectory(prefix="emugpu-jobs-"))
            self._path = Path(directory) / "results.db"
        for part in (self.results, self._collector, self._clock_watch):
            if part is not None:
                part.start()

    def stop(self) -> None:
        """Twice is once. What is under way comes again after the next start."""
        parts = [part for part in (self._clock_watch, self._collector, self.results) if part is not None]
        for timeout_s in (0.0, _STOP_S):  # all are told before any is waited for
            for part in parts:
                part.stop(timeout_s)
        self._undo.close()

    def _opened(self) -> ResultStore:
        assert self._path is not None  # threads run after `start`
        return ResultStore(self._path)

    def _addresses(self) -> Mapping[str, tuple[str, int]]:
        return {node: (address, self._port) for node, address in self._links.managers().items()}

    def _note_offset(self, offset: ClockOffset) -> None:
        store = self._opened()
        try:
            self.results.look_at(store.note_offset(offset))
        finally:
            store.close()
