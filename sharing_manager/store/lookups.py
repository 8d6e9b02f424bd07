"""Looks up the progress of jobs in Redis, in a separate thread, so that neither the poller nor the shipper waits for it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from emulator_runtime.domain.errors import EmuGpuError, ManagerUnavailableError
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.ipc.poller import CallSoon
from emulator_runtime.retrying import Backoff, keep_running
from sharing_manager.persistence.progress import OnProgress
from sharing_manager.store.outbox import Outbox
from sharing_manager.store.progress_queries import ProgressQuery

MAX_WAIT_S = 60.0
"""Maximum time that a look-up waits for Redis (host seconds): long enough for a fail-over or a restart of its pod."""
_MOST_AT_ONCE = 256


@dataclass(frozen=True, slots=True, eq=False)
class _Lookup:
    job_key: str
    done: OnProgress
    give_up_ns: int


class RedisProgress:
    """The ProgressStore of a cluster. `done` is always called in the poller's thread."""

    def __init__(
        self,
        query: ProgressQuery,
        open_outbox: Callable[[], Outbox],
        poller: CallSoon,
        backoff: Backoff,
        now_ns: Callable[[], int],
        *,
        max_wait_s: float = MAX_WAIT_S,
    ) -> None:
        self._query, self._open_outbox, self._poller = query, open_outbox, poller
        self._backoff, self._now_ns = backoff, now_ns
        self._max_wait_ns = round(max_wait_s * NS_PER_S)
        self._queue: queue.SimpleQueue[_Lookup | None] = queue.SimpleQueue()
        self._waiting: list[_Lookup] = []
        self._outbox: Outbox | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="emugpu-progress", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End the thread. Look-ups that still wait get an error that says that the manager is ending."""
        self._stopping.set()
        self._queue.put(None)
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def lookup(self, job_key: str, done: OnProgress) -> None:
        """See ProgressStore. `done` gets ManagerUnavailableError if Redis stays unavailable and the job may have run
        elsewhere."""
        self._queue.put(_Lookup(job_key, done, self._now_ns() + self._max_wait_ns))

    def distrust(self) -> None:
        """Redis refuses this node's events, so it may lack those of other nodes, too. May be called in any thread."""
        self._query.distrust()

    def _run(self) -> None:
        keep_running("looking up the progress of jobs", self._turn, self._stopping, self._backoff, self._give_up)
        if self._outbox is not None:
            self._outbox.close()
        self._take(block=False)
        for lookup in self._waiting:
            self._call(lookup, ManagerUnavailableError("the sharing manager is ending; try again"))

    def _turn(self) -> None:
        """Wait for a look-up, then answer all that wait."""
        self._take(block=not self._waiting)
        self._outbox = self._outbox or self._open_outbox()
        self._answer_local(self._outbox)
        self._answer_from_redis(self._outbox)
        self._backoff.reset()

    def _take(self, *, block: bool) -> None:
        """Take new look-ups from the queue. A None only wakes this thread."""
        new = [self._queue.get()] if block else []
        while not self._queue.empty():
            new.append(self._queue.get())
        self._waiting += [lookup for lookup in new if lookup is not None]

    def _answer_local(self, outbox: Outbox) -> None:
        for lookup in [lookup for lookup in self._waiting if not may_run_on_any_node(lookup.job_key)]:
            self._answer(lookup, outbox.progress_of(lookup.job_key))

    def _answer_from_redis(self, outbox: Outbox) -> None:
        """The node's own progress is read before Redis is asked: entries that are shipped in between are then found in
        Redis."""
        while self._waiting:
            lookups = self._waiting[:_MOST_AT_ONCE]
            own = [outbox.progress_of(lookup.job_key) for lookup in lookups]
            for lookup, *known in zip(lookups, own, self._query([lookup.job_key for lookup in lookups]), strict=True):
                self._answer(lookup, max((steps for steps in known if steps is not None), default=None))

    def _give_up(self, error: Exception) -> None:
        """Answer the look-ups that have waited too long with the error; the others continue to wait."""
        for lookup in [lookup for lookup in self._waiting if lookup.give_up_ns <= self._now_ns()]:
            text = f"the progress of job {lookup.job_key!r} on other nodes is unknown: {error}"
            self._answer(lookup, ManagerUnavailableError(text))

    def _answer(self, lookup: _Lookup, answer: int | EmuGpuError | None) -> None:
        self._waiting.remove(lookup)
        self._call(lookup, answer)

    def _call(self, lookup: _Lookup, answer: int | EmuGpuError | None) -> None:
        self._poller.call_soon(lambda: lookup.done(answer))


def may_run_on_any_node(job_key: str) -> bool:
    """Whether the key is of a Job ("<namespace>/<Job UID>/<index>"); a pod without a Job never leaves its node."""
    return "/" in job_key
