"""Model-based test: after any losses, kills and failures, each event arrives once, in order, or is counted as lost."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from itertools import pairwise
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sharing_manager.grants.grant import Grant
from sharing_manager.persistence.event_log import ManagerEvent, SqliteEventLog
from sharing_manager.store.entries import EntryId, furthest
from sharing_manager.store.outbox import Outbox
from sharing_manager.store.redis_errors import StoreUnavailableError, StreamMovedError
from sharing_manager.store.resume import Position, resume
from sharing_manager.store.shipper import Bounds, Shipper
from sharing_manager.store.trimming import Trimmed

DIES = ("never", "before", "between", "after")


class ModelRedis:
    """A stream and a sorted set; `fails` says of the next write whether it dies before, between or after its effects."""

    def __init__(self):
        self.entries, self.last, self.progress = [], None, {}
        self.reachable, self.fails = True, "never"
        self.place = "model"

    def open(self):
        self._reach()
        return []

    def last_id(self):
        self._reach()
        return self.last

    def highest_of(self, epoch):
        self._reach()
        return max((entry_id.sequence for entry_id, _ in self.entries if entry_id.epoch == epoch), default=None)

    def append(self, epoch, entries):
        self._reach()
        fails, self.fails = self.fails, "never"
        if fails == "before":
            raise StoreUnavailableError(self.place, "away", "it died")
        if self.last is not None and EntryId(epoch, entries[0].sequence) <= self.last:
            raise StreamMovedError
        for entry in entries:
            self.last = EntryId(epoch, entry.sequence)
            self.entries.append((self.last, entry))
        if fails == "between":  # as where the key of the progress holds something else
            raise StoreUnavailableError(self.place, "type", "one command failed")
        self.raise_progress([(key, *known) for key, known in furthest(entries).items()])
        if fails == "after":
            raise StoreUnavailableError(self.place, "away", "it died")

    def raise_progress(self, known):
        self._reach()
        for key, steps, _ in known:
            self.progress[key] = max(steps, self.progress.get(key, 0))

    def make_room(self, length, *, urgent):
        self._reach()
        return Trimmed("stream", 0, "the model keeps all")

    def close(self):
        pass

    def lose(self, count):
        """The newest entries, as a fail-over to a replica that lags does; progress goes with them."""
        del self.entries[len(self.entries) - count :]
        self.last = self.entries[-1][0] if self.entries else None
        self.progress = {key: steps for key, (steps, _) in furthest(entry for _, entry in self.entries).items()}

    def _reach(self):
        if not self.reachable:
            raise StoreUnavailableError(self.place, "away", "it is away")


class Machine(RuleBasedStateMachine):
    @initialize(outbox_bytes=st.sampled_from([500, 2_000, 1_000_000]))
    def begin(self, outbox_bytes):
        self.stack = contextlib.ExitStack()
        directory = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.path, self.outbox_bytes = directory / "manager.db", outbox_bytes
        self.log = SqliteEventLog(self.path)
        self.redis = ModelRedis()
        self.reached, self.recorded, self.forced_repeats = {}, 0, 0
        self.clock_ns = itertools.count(1, 20_000_000_000)
        self.shipper = self.outbox = None
        self.loss_unnoticed = False
        self.restart_shipper()

    @rule(job=st.sampled_from("ab"), kinds=st.lists(st.sampled_from(["progress", "oom", "attached"]), max_size=9))
    def record(self, job, kinds):
        for kind in kinds:
            start = self.reached.get(job, 0)
            done = start + (kind == "progress")
            self.reached[job] = done
            grant = Grant(digest=job, job_id=job, devices=(), steps_done=done, floor_ns=0)
            self.log.record(ManagerEvent(1, kind, job, done, start, wall_ns=1), grant)
            self.recorded += 1

    @rule(fails=st.sampled_from(DIES), reachable=st.booleans())
    def attempt(self, fails, reachable):
        self.redis.fails, self.redis.reachable = fails, reachable
        self.try_once()

    @rule()
    def restart_shipper(self):
        """As after kill -9: nothing but the file is left."""
        if self.outbox is not None:
            self.outbox.close()
        self.outbox = Outbox(self.path, "n", lambda: 1_000)
        clock = lambda: next(self.clock_ns)  # noqa: E731
        self.lines = []
        self.shipper = Shipper(
            self.outbox,
            self.redis,
            Bounds(self.outbox_bytes, 1_000),
            self.lines.append,
            now_ns=clock,
            now_ms=lambda: 1_000,
        )

    @rule(count=st.integers(1, 20))
    def redis_loses_what_it_had_not_saved(self, count):
        """Within the tail that the outbox keeps for this, and under the epoch that it writes now."""
        epoch = self.outbox.position().epoch
        self.redis.lose(min(count, sum(entry_id.epoch == epoch for entry_id, _ in self.redis.entries)))
        self.loss_unnoticed = True
        self.shipper.failed(StoreUnavailableError("model", "away", "it died"))

    @precondition(lambda self: not self.loss_unnoticed)
    @rule(ahead=st.integers(1, 50))
    def a_second_manager_wrote_under_this_name(self, ahead):
        """It began later than whatever wrote so far: the same millisecond isn't told apart."""
        epochs = [self.outbox.position().epoch] + ([self.redis.last.epoch] if self.redis.last else [])
        self.redis.last = EntryId(max(epochs) + ahead, 1)

    def try_once(self):
        try:
            self.shipper.attempt()
            self.loss_unnoticed = False
        except StoreUnavailableError as error:
            self.shipper.failed(error)
        self.shipper.make_room()

    @invariant()
    def what_is_in_redis_is_in_order_and_there_once(self):
        ids = [entry_id for entry_id, _ in self.redis.entries]
        assert ids == sorted(set(ids))
        numbers = [entry.sequence for _, entry in self.redis.entries]
        assert numbers == sorted(set(numbers))

    def teardown(self):
        if hasattr(self, "redis"):
            try:
                self.check_the_end()
            finally:
                self.outbox.close()
                self.log.close()
                self.stack.close()

    def check_the_end(self):
        """Redis is there again: what arrives in the end."""
        self.redis.reachable, self.redis.fails = True, "never"
        while self.outbox.batch(1) or not self.shipper.connected:
            self.try_once()
        entries = [entry for _, entry in self.redis.entries]
        assert sum(1 + entry.absorbed for entry in entries) == self.recorded
        assert self.outbox.merged() == self.recorded - len(entries)
        for job, steps in self.reached.items():
            ranges = [(e.from_step, e.steps_done) for e in entries if e.job_id == job]
            if ranges:
                assert (ranges[0][0], ranges[-1][1]) == (0, steps)
            assert all(one[1] == other[0] for one, other in pairwise(ranges))
            assert self.redis.progress.get(job, 0) == steps
        assert self.shipper.measure(recount=True).rows == 0


TestShipper = Machine.TestCase
TestShipper.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_nothing_is_taken_for_shipped_because_of_a_greater_id():
    here = Position(epoch=100, sent=20, shipped=10)
    assert resume(here, EntryId(100, 20), None, 0).position == Position(100, 20, 20)  # the answer was lost
    assert resume(here, EntryId(100, 10), None, 0).position == Position(100, 20, 10)  # the request was
    assert resume(here, EntryId(100, 4), None, 0).position == Position(100, 20, 4)
    assert resume(here, EntryId(100, 4), None, 0).behind
    assert resume(here, EntryId(100, 21), None, 50).position == Position(101, 20, 20, 20)
    assert resume(here, EntryId(300, 1), 15, 50).position == Position(301, 20, 15, 15)
    assert resume(here, EntryId(300, 1), None, 900).position == Position(900, 20, 10, 10)
    assert resume(here, None, None, 0).position == Position(100, 20, 0)
    later = Position(epoch=301, sent=20, shipped=15, base=15)
    assert resume(later, EntryId(300, 1), None, 0) == resume(later, EntryId(100, 15), None, 0)
    assert not resume(later, EntryId(300, 1), None, 0).behind
