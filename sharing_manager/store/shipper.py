"""Ships the outbox to Redis, in order and each entry once: the policy of the shipping thread, over an Outbox and a Link.

An attempt ships either the whole batch or nothing. If the answer is lost, the next connection finds out which, from the
stream's newest id. Meanwhile the manager continues, and its events wait in the outbox.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from emulator_runtime.domain.units import NS_PER_S
from sharing_manager.store.entries import furthest
from sharing_manager.store.outbox import Backlog, Outbox, size_of
from sharing_manager.store.redis_errors import MEMORY, PERMISSION, StoreUnavailableError, StreamMovedError
from sharing_manager.store.redis_link import Link
from sharing_manager.store.resume import Position, Resumption, resume
from sharing_manager.store.trimming import Trimmed

BATCH_ROWS = 128
TAIL_ROWS = 1000
"""Number of shipped entries that are kept for local subscribers."""
TAIL_S = 10.0
"""Minimum time that shipped entries are kept (host seconds): a Redis that syncs its file every second may lose the last
two."""
CHECK_S = 2.0
"""Interval at which an idle shipper checks that Redis is available and still has all entries (host seconds)."""
TRIM_S = 60.0
"""Maximum interval between trims of the stream (host seconds). It is also trimmed when it has grown by a tenth of its
length."""
_TRIM_SHARE = 0.1
_MARK_EVERY_NS = NS_PER_S
_ROOM_SHARE = 0.25
"""Minimum share of a full outbox that is freed, so that it isn't full again at once."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """`outbox_bytes`: maximum size of the waiting entries on this node. `stream_length`: number of this node's entries
    that stay in Redis unless a consumer group needs more."""

    outbox_bytes: int
    stream_length: int


@dataclass(slots=True)
class Counts:
    """Counts since the start of this process."""

    shipped: int = 0
    connections: int = 0
    rewound: int = 0
    lost: int = 0
    """Upper limit of the number of entries that Redis had confirmed and lost, and that this node doesn't have any more."""


class Shipper:
    """One step at a time; not thread-safe. `report` gets one line per change of state."""

    def __init__(
        self,
        outbox: Outbox,
        link: Link,
        bounds: Bounds,
        report: Callable[[str], None],
        *,
        now_ns: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        self._outbox, self._link, self._report = outbox, link, report
        self._now_ns, self._now_ms = now_ns, now_ms
        self._outbox_bytes = self._compact_above_bytes = bounds.outbox_bytes
        self._stream_length = bounds.stream_length
        self._trimmed_ns: int | None = None
        self._shipped_since_trim = 0
        self._position: Position = outbox.position()
        self._counted = outbox.newest()
        self.backlog = outbox.backlog()
        self.counts = Counts()
        self.connected = False
        self.problem = ""
        self._confirmed_ns = 0
        self._marks: list[tuple[int, int]] = []
        self._reported: set[str] = set()

    # --- shipping ---------------------------------------------------------------------------------------------------

    def attempt(self) -> int:
        """Connect if necessary, and ship one batch. Returns the number of entries. Raises StoreUnavailableError."""
        try:
            if not self.connected:
                self._connect()
            elif self._now_ns() - self._confirmed_ns >= CHECK_S * NS_PER_S:
                self._resume()
            shipped = self._ship()
        except StreamMovedError:
            shipped = self._ship_after_move()
        if self._trim_is_due():
            self._trim()
        return shipped

    def _ship_after_move(self) -> int:
        try:
            self._resume()
            return self._ship()
        except StreamMovedError as error:
            fix = "give each node a name of its own (EMUGPU_MANAGER_NODE)"
            problem = f"another manager keeps writing to the stream of this node's name; {fix}"
            raise StoreUnavailableError(self._link.place, "second-writer", problem) from error

    def failed(self, error: StoreUnavailableError) -> None:
        """An attempt failed: the next one must make a new connection."""
        self.connected = False
        new = error.kind != self.problem
        if new:
            self.problem = error.kind
            self._report(f"{error}; events wait on this node")
        if error.kind == MEMORY:
            self._free_memory(report=new)
        self._link.close()

    def _connect(self) -> None:
        warnings = self._link.open()
        self._resume()
        if self.problem:
            self._send_progress_first()
        self.connected = True
        self.counts.connections += 1
        for warning in warnings:
            self._report_once(warning)
        if self.problem:
            self.problem = ""
            self._report(f"{self._link.place}: connected again; {self.backlog.rows} events to ship")

    def _send_progress_first(self) -> None:
        """Send the waiting jobs' progress before the entries: jobs that moved to another node wait for it."""
        self._link.raise_progress([(*known, self._now_ms()) for known in self._outbox.waiting_progress()])

    def _report_once(self, line: str) -> None:
        if line not in self._reported:
            self._reported.add(line)
            self._report(line)

    def _resume(self) -> None:
        last = self._link.last_id()
        newer = last is not None and last.epoch > self._position.epoch
        own = self._link.highest_of(self._position.epoch) if newer else None
        resumption = resume(self._position, last, own, self._now_ms())
        if resumption.behind:
            self._prepare_to_resend(resumption)
        elif resumption.note:
            self._report_once(f"{self._link.place}: {resumption.note}")
        if resumption.position != self._position:
            self._confirm_progress(resumption.position.shipped)
            self._outbox.resume_at(resumption.position)
            self._position = resumption.position
            self.backlog, self._counted = self._outbox.backlog(), self._outbox.newest()
            self._marks.clear()
        self._confirmed_ns = self._now_ns()

    def _confirm_progress(self, up_to: int) -> None:
        """Send the progress of entries that Redis has but hasn't confirmed: a single command of their transaction may
        have failed."""
        known = furthest(self._outbox.between(self._position.shipped, up_to))
        self._link.raise_progress([(key, *steps) for key, steps in known.items()])

    def _prepare_to_resend(self, resumption: Resumption) -> None:
        """Prepare to send again what this node still has. For the lost entries, send at least the progress of the jobs."""
        oldest = self._outbox.oldest() or self._position.shipped + 1
        lost = max(0, min(oldest - 1, self._position.shipped) - resumption.position.shipped)
        self.counts.lost += lost
        self.counts.rewound += 1
        self._link.raise_progress([(*known, self._now_ms()) for known in self._outbox.all_progress()])
        again = self._position.shipped - resumption.position.shipped - lost
        self._report(f"{self._link.place}: {resumption.note}: up to {again} are sent again, up to {lost} are lost")

    def _ship(self) -> int:
        self.measure()
        entries = self._outbox.batch(BATCH_ROWS)
        if not entries:
            return 0
        last = entries[-1].sequence
        self._outbox.mark_sent(last)
        self._position = replace(self._position, sent=max(last, self._position.sent))
        self._link.append(self._position.epoch, entries)
        self._outbox.mark_shipped(last)
        self._position = replace(self._position, shipped=last)
        self._confirmed_ns = self._now_ns()
        self.counts.shipped += len(entries)
        self._shipped_since_trim += len(entries)
        size = self.backlog.size_bytes - sum(size_of(entry) for entry in entries)
        self.backlog = Backlog(max(0, self.backlog.rows - len(entries)), max(0, size), self.backlog.oldest_wall_ns)
        self.measure(recount=len(entries) < BATCH_ROWS)
        return len(entries)

    # --- room in Redis ----------------------------------------------------------------------------------------------

    def _trim_is_due(self) -> bool:
        return (
            self._trimmed_ns is None
            or self._now_ns() - self._trimmed_ns >= TRIM_S * NS_PER_S
            or self._shipped_since_trim >= _TRIM_SHARE * self._stream_length
        )

    def _trim(self, *, urgent: bool = False) -> Trimmed | None:
        """Trim the stream. None if the configured user may not do that. Raises StoreUnavailableError for any other error."""
        self._trimmed_ns, self._shipped_since_trim = self._now_ns(), 0
        try:
            return self._link.make_room(self._stream_length, urgent=urgent)
        except StoreUnavailableError as error:
            if error.kind != PERMISSION:
                raise
            self._report_once(f"{error}; events are still shipped, but the stream grows until Redis is full")
            return None

    def _free_memory(self, *, report: bool) -> None:
        """Trim on the connection on which writes were refused; Redis never refuses to delete."""
        with contextlib.suppress(StoreUnavailableError):  # already reported; the next attempt tries again
            done = self._trim(urgent=True)
            if done is not None and report:
                self._report(
                    f"{self._link.place}: {done.stream}: {done.removed} entries deleted to make room; {done.reason}"
                )

    # --- room on this node ------------------------------------------------------------------------------------------

    def measure(self, *, recount: bool = False) -> Backlog:
        """Update `backlog`. Only new entries are counted, unless `recount` (which is cheap for a small backlog)."""
        newest = self._outbox.newest()
        if recount:
            self.backlog = self._outbox.backlog()
        elif newest > self._counted:
            new = self._outbox.backlog(after=max(self._counted, self._position.shipped))
            rows, size = self.backlog.rows + new.rows, self.backlog.size_bytes + new.size_bytes
            self.backlog = Backlog(rows, size, new.oldest_wall_ns)
        self._counted = newest
        return self.backlog

    def make_room(self) -> None:
        """Keep the outbox within its limits: merge entries that can't be shipped, delete entries that were shipped long
        ago."""
        self._prune()
        if self.measure().size_bytes <= self._compact_above_bytes:
            return
        excess = self.backlog.size_bytes - round((1 - _ROOM_SHARE) * self._outbox_bytes)
        all_freed = self._outbox.compact(excess) >= excess
        size = self.measure(recount=True).size_bytes
        if all_freed or size <= self._outbox_bytes:
            self._compact_above_bytes = self._outbox_bytes
            return
        self._compact_above_bytes = round(size * (1 + _ROOM_SHARE))  # otherwise each call would search in vain
        fix = f"raise EMUGPU_MANAGER_OUTBOX_BYTES ({self._outbox_bytes}) or bring Redis back"
        self._report(f"the outbox holds {size} bytes of events that can't be merged or deleted; {fix}")

    def _prune(self) -> None:
        """Delete entries that were shipped at least TAIL_S ago, one chunk per call, except for the last TAIL_ROWS."""
        now_ns = self._now_ns()
        if not self._marks or now_ns - self._marks[-1][0] >= _MARK_EVERY_NS:
            self._marks.append((now_ns, self._position.shipped))
        old = [shipped for at_ns, shipped in self._marks if now_ns - at_ns >= TAIL_S * NS_PER_S]
        if old and not self._outbox.prune(min(old[-1], self._position.shipped - TAIL_ROWS)):
            del self._marks[: len(old) - 1]
