"""What ran when: a simulation of hosts, streams, engines and collectives that replays a trace with given durations.

The rules are those of the online emulation (cuda/src/core/stream.c), with virtual time in the place of the host's clock: a call
that gives work to a stream learns its end at once, unless something before it in the stream isn't known yet; then it waits in the
stream's queue. A rank's records are gone through in their order. Ranks meet in collectives only: a rank without open ones runs
ahead, another one no farther than the rank that is last in host time, so that results don't depend on who runs first.

The threads of a rank share one host time. When one has waited, its next record comes later by that, and so does all that comes
after it in the trace, since another thread may have waited for it (autograd's and the main one); until then the others go on.
"""

from __future__ import annotations

import heapq
from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emulator_runtime.prediction.engine import Engine
from emulator_runtime.prediction.estimators import Estimator
from emulator_runtime.prediction.links import CollectiveEstimator
from emulator_runtime.prediction.meetings import NOTHING_GIVEN, Call, GivenTimes, Meetings, stuck
from emulator_runtime.prediction.records import (
    Await,
    Collective,
    Copy,
    HostFunction,
    HostWaits,
    Launch,
    Mark,
    Memory,
    RankTrace,
    Record,
    Trace,
    Work,
)

QUEUE_DEPTH = 1024
"""Launches that a stream holds before the host waits, as a GPU's queue does."""
_MOST_COSTS = 1 << 17
_FOREVER_NS = 1 << 62


@dataclass(frozen=True, slots=True)
class Spans:
    """When records took place, in the order in which that became known: indexes into the rank's records, and times (ns)."""

    records: array[int]
    starts_ns: array[int]
    ends_ns: array[int]

    @classmethod
    def none(cls) -> Spans:
        return cls(array("q"), array("q"), array("q"))

    def add(self, record: int, start_ns: int, end_ns: int) -> None:
        self.records.append(record)
        self.starts_ns.append(start_ns)
        self.ends_ns.append(end_ns)


@dataclass(frozen=True, slots=True)
class RankRun:
    """What a rank did. `device_work`: launches, copies and functions of the host; `collectives`: from when the last rank came;
    `arrivals_ns` is when this one did; `host_waits`: of its threads, also for a place in a queue. `compute`: when the compute
    units of each device were taken. `memory_peaks`: bytes by device, as recorded."""

    trace: RankTrace
    end_ns: int
    device_work: Spans
    collectives: Spans
    arrivals_ns: array[int]
    host_waits: Spans
    compute: Mapping[int, Engine]
    memory_peaks: Mapping[int, int]


EstimatorOf = Callable[[int, int], Estimator]
"""The estimator for a rank (its place in the trace) and the index of one of its devices."""


def simulate(
    trace: Trace, estimator_of: EstimatorOf, links: CollectiveEstimator, given: GivenTimes = NOTHING_GIVEN
) -> tuple[RankRun, ...]:
    """What each rank does, by rank. `given`: durations that come before those of the estimators.

    Raises DeadlockError if ranks wait for each other for ever or for a moment that never comes, and InputError for records that
    contradict each other.
    """
    return _Job(trace, estimator_of, links, given).run()


class _Costs:
    """Durations by an estimator. Records share their Works, so they are looked up by identity, which is fast; each is kept, so
    that its identity stays its own."""

    __slots__ = ("by_identity", "by_value", "copies", "estimator")

    def __init__(self, estimator: Estimator) -> None:
        self.estimator = estimator
        self.by_identity: dict[int, tuple[int, int, Work]] = {}
        self.by_value: dict[Work, tuple[int, int]] = {}
        self.copies: dict[tuple[int, int, int], int] = {}

    def of_work(self, work: Work) -> tuple[int, int, Work]:
        """Its duration, and what the measured host needs for its launch."""
        times = self.by_value.get(work)
        if times is None:
            estimate = self.estimator.work(work)
            launch_ns = self.estimator.dispatch_ns if estimate.dispatch_ns is None else estimate.dispatch_ns
            times = self.by_value[work] = estimate.duration_ns, launch_ns
        if len(self.by_identity) >= _MOST_COSTS:
            self.by_identity.clear()
        cost = self.by_identity[id(work)] = *times, work
        return cost

    def of_copy(self, copy: Copy) -> int:
        key = copy.to_device, copy.from_device, copy.bytes
        duration_ns = self.copies.get(key)
        if duration_ns is None:
            duration_ns = self.copies[key] = self.estimator.copy(*key).duration_ns
        return duration_ns


class _Device:
    __slots__ = ("compute", "copy_in", "copy_out", "costs", "dispatched_ns")

    def __init__(self, costs: _Costs) -> None:
        self.compute, self.copy_in, self.copy_out = Engine(), Engine(), Engine()
        self.costs = costs
        self.dispatched_ns = 0
        """When the measured host could have made the next launch."""

    def engine_of(self, copy: Copy) -> Engine | None:
        if copy.to_device == copy.from_device:
            return self.compute if copy.to_device >= 0 else None
        return self.copy_in if copy.from_device < 0 else self.copy_out


Waiting = tuple[int, int, int]
"""The index of a record, when it was issued, and its duration."""


class _Stream:
    """`end_ns`: of what is known. `queue`: what isn't known yet, in order. `recent`: ends of the last launches."""

    __slots__ = ("device", "end_ns", "queue", "rank", "recent")

    def __init__(self, rank: _Rank, device: _Device) -> None:
        self.rank, self.device = rank, device
        self.end_ns = 0
        self.queue: deque[Waiting | Call[_Stream]] = deque()
        self.recent: deque[int] = deque(maxlen=QUEUE_DEPTH)


class _Rank:
    """The state of a rank: its host, which has come to a record, its streams and devices."""

    def __init__(self, job: _Job, place: int, trace: RankTrace) -> None:
        self.job, self.place, self.trace = job, place, trace
        self.records: Sequence[Record] = trace.records
        self.position = 0
        self.shift_ns = 0
        """How much later the host is than in the trace, where it waited for nothing."""
        self.resuming: dict[int, tuple[int, int, int]] = {}
        """By thread that waits: the moment, the recorded time of the wait, and its index."""
        self.open_calls = 0
        """Collectives that wait for others."""
        self.blocked: str = ""
        """Why the host can't go on, if it can't."""
        self.blocked_stream: _Stream | None = None
        self.now_ns = 0
        self.devices: dict[int, _Device] = {}
        self.streams: dict[tuple[int, int], _Stream] = {}
        self.moments: dict[int, int] = {}
        self.awaiting: dict[int, list[_Stream]] = {}
        """Streams that wait for a moment."""
        self.work, self.collectives, self.waits = Spans.none(), Spans.none(), Spans.none()
        self.arrivals_ns = array("q")
        self.given = job.given.launches.get(trace.rank)
        self.memory: dict[int, int] = {}

    # ---- the host

    def next_ns(self) -> int:
        """The host's time at its next record."""
        record = self.records[self.position]
        shift_ns = self.shift_ns
        if record.thread in self.resuming:
            moment, since_ns, _ = self.resuming[record.thread]
            shift_ns = max(shift_ns, self.moments.get(moment, 0) - since_ns)
        return record.at_ns + shift_ns

    def advance(self, limit_ns: int) -> None:
        """Go through the records up to a collective, a wait whose end isn't known, or the end; with collectives that are open,
        only up to `limit_ns`."""
        records, resuming, streams = self.records, self.resuming, self.streams
        while self.position < len(records):
            position = self.position
            record: Any = records[position]  # narrowing by isinstance would take a third of the time
            if resuming and record.thread in resuming and not self._resume(record.thread):
                return
            now_ns = self.now_ns = record.at_ns + self.shift_ns
            if self.open_calls and now_ns > limit_ns:
                return
            kind = record.__class__
            if kind in _ISSUED:
                stream = streams.get((record.device, record.stream)) or self._stream(record)
                if not self._has_room(stream, now_ns):
                    if self.blocked:
                        return
                    continue  # the host comes later to the same record
                if kind is Collective:
                    self.open_calls += 1
                    self.position += 1
                    self._append(stream, Call(stream, self.trace, position, now_ns))
                    return
                self._issue(stream, record, position, now_ns)
            elif kind is Mark:
                stream = streams.get((record.device, record.stream)) or self._stream(record)
                if stream.queue:
                    stream.queue.append((position, now_ns, 0))
                else:
                    self._passed(record.moment, max(stream.end_ns, now_ns))
            elif kind is Await:
                stream = streams.get((record.device, record.stream)) or self._stream(record)
                end_ns = self.moments.get(record.moment)
                if stream.queue or end_ns is None:
                    self._append(stream, (position, now_ns, 0))
                else:
                    stream.end_ns = max(stream.end_ns, end_ns)
            elif kind is HostWaits:
                resuming[record.thread] = record.moment, record.at_ns, position
                self.waits.add(position, now_ns, -1)
            elif kind is Memory:
                self.memory[record.device] = max(record.used_bytes, self.memory.get(record.device, 0))
            self.position += 1

    def _has_room(self, stream: _Stream, now_ns: int) -> bool:
        """Whether the stream's queue has a place. If not, the host is later by when it has, or blocked if that isn't known."""
        recent = stream.recent
        if len(recent) == QUEUE_DEPTH and recent[0] > now_ns:
            self.waits.add(self.position, now_ns, recent[0])
            self.shift_ns += recent[0] - now_ns
            return False
        if len(stream.queue) >= QUEUE_DEPTH:
            self.blocked, self.blocked_stream = "for a place in a stream's queue", stream
            return False
        return True

    def _issue(self, stream: _Stream, record: Any, position: int, now_ns: int) -> None:
        device, engine = stream.device, None
        kind = record.__class__
        if kind is Launch:
            work = record.work
            duration_ns, launch_ns, _ = device.costs.by_identity.get(id(work)) or device.costs.of_work(work)
            if self.given is not None:
                duration_ns = self.given.get(position, duration_ns)
            engine = device.compute
            if launch_ns and record.dispatched:
                now_ns = max(now_ns, device.dispatched_ns)
                device.dispatched_ns = now_ns + launch_ns
        elif kind is Copy:
            duration_ns = device.costs.of_copy(record)
            engine = device.engine_of(record)
        else:
            duration_ns = record.duration_ns
        if stream.queue:
            stream.queue.append((position, now_ns, duration_ns))
        else:
            self._do(stream, engine, position, max(stream.end_ns, now_ns), duration_ns)

    def _do(self, stream: _Stream, engine: Engine | None, position: int, ready_ns: int, duration_ns: int) -> None:
        if engine is None:
            start_ns, end_ns = ready_ns, ready_ns + duration_ns
        else:
            end_ns = engine.take(ready_ns, duration_ns)
            start_ns = engine.start_ns
        stream.end_ns = end_ns
        stream.recent.append(end_ns)
        self.work.add(position, start_ns, end_ns)

    def _resume(self, thread: int) -> bool:
        """The host goes on behind a thread's wait; False: its end isn't known, and the host is blocked."""
        moment, since_ns, position = self.resuming[thread]
        end_ns = self.moments.get(moment)
        if end_ns is None:
            self.blocked = f"for moment {moment} (record {position})"
            return False
        del self.resuming[thread]
        self._end_wait(position, end_ns)
        self.shift_ns = max(self.shift_ns, end_ns - since_ns)
        self.now_ns = max(self.now_ns, end_ns)
        return True

    def _end_wait(self, position: int, end_ns: int) -> None:
        spans = self.waits
        at = len(spans.records) - 1
        while spans.records[at] != position or spans.ends_ns[at] >= 0:
            at -= 1
        spans.ends_ns[at] = max(end_ns, spans.starts_ns[at])

    def finish_waits(self) -> None:
        """The waits after which a thread does nothing any more."""
        for thread in tuple(self.resuming):
            self._resume(thread)

    def _stream(self, record: Any) -> _Stream:
        number, name = record.device, record.stream
        device = self.devices.get(number)
        if device is None:
            device = self.devices[number] = _Device(self.job.costs_of(self.place, number))
        stream = self.streams[number, name] = _Stream(self, device)
        return stream

    # ---- streams

    def _append(self, stream: _Stream, waiting: Waiting | Call[_Stream]) -> None:
        stream.queue.append(waiting)
        if len(stream.queue) == 1:
            self.job.changed.append(stream)
            self.job.settle()

    def _passed(self, moment: int, end_ns: int) -> None:
        self.moments[moment] = end_ns
        if moment in self.awaiting:
            self.job.changed.extend(self.awaiting.pop(moment))
            self.job.settle()

    def drain(self, stream: _Stream) -> None:
        """Settle what can be settled of a stream's queue, from its beginning."""
        queue = stream.queue
        while queue:
            waiting = queue[0]
            if isinstance(waiting, Call):
                if not self._settled(stream, waiting):
                    return
            elif not self._settle(stream, *waiting):
                return
            queue.popleft()

    def _settled(self, stream: _Stream, call: Call[_Stream]) -> bool:
        if not call.arrived:
            self.job.meetings.arrive(call, max(stream.end_ns, call.issued_ns))
        if call.end_ns < 0:
            return False
        self.open_calls -= 1
        self.collectives.add(call.position, call.start_ns, call.end_ns)
        self.arrivals_ns.append(call.arrival_ns)
        stream.end_ns = call.end_ns
        stream.recent.append(call.end_ns)
        return True

    def _settle(self, stream: _Stream, position: int, issued_ns: int, duration_ns: int) -> bool:
        record = self.records[position]
        ready_ns = max(stream.end_ns, issued_ns)
        if isinstance(record, Mark):
            self.moments[record.moment] = ready_ns
            self.job.changed.extend(self.awaiting.pop(record.moment, ()))
            return True
        if isinstance(record, Await):
            end_ns = self.moments.get(record.moment)
            if end_ns is None:
                waiting = self.awaiting.setdefault(record.moment, [])
                if stream not in waiting:
                    waiting.append(stream)
                return False
            stream.end_ns = max(stream.end_ns, end_ns)
            return True
        device = stream.device
        engine = device.compute if isinstance(record, Launch) else None
        if isinstance(record, Copy):
            engine = device.engine_of(record)
        self._do(stream, engine, position, ready_ns, duration_ns)
        return True

    # ---- how it stands

    def can_go_on(self) -> bool:
        """Whether what blocked the host is over."""
        if self.blocked_stream is not None:
            return len(self.blocked_stream.queue) < QUEUE_DEPTH
        return self.resuming[self.records[self.position].thread][0] in self.moments

    def troubles(self) -> list[str]:
        """What will never happen, if all ranks have gone as far as they can."""
        found = [f"its host waits {self.blocked}"] if self.blocked else []
        for (device, name), stream in self.streams.items():
            if stream.queue:
                found.append(f"stream {name} of device {device} {self._waits_for(stream.queue[0])}")
        return found

    def _waits_for(self, waiting: Waiting | Call[_Stream]) -> str:
        if isinstance(waiting, Call):
            return self.job.meetings.waits_for(waiting)
        record = self.records[waiting[0]]
        assert isinstance(record, Await)  # all else is settled when it comes first
        marked = any(isinstance(other, Mark) and other.moment == record.moment for other in self.records)
        return f"waits for moment {record.moment} (record {waiting[0]}), {_MARKED if marked else _NEVER_MARKED}"

    def run(self) -> RankRun:
        ends = [stream.end_ns for stream in self.streams.values()]
        return RankRun(
            trace=self.trace,
            end_ns=max([self.now_ns, *ends]),
            device_work=self.work,
            collectives=self.collectives,
            arrivals_ns=self.arrivals_ns,
            host_waits=self.waits,
            compute={number: device.compute for number, device in self.devices.items()},
            memory_peaks=self.memory,
        )


_ISSUED = frozenset({Launch, Copy, Collective, HostFunction})
"""Calls that take a place in a stream's queue."""
_MARKED, _NEVER_MARKED = "whose stream doesn't come to it", "which no record of the rank sets"


class _Job:
    """All ranks, and who goes next."""

    def __init__(self, trace: Trace, estimator_of: EstimatorOf, links: CollectiveEstimator, given: GivenTimes) -> None:
        self.estimator_of, self.given = estimator_of, given
        self.costs: dict[int, _Costs] = {}
        self.changed: deque[_Stream] = deque()
        """Streams whose first waiting work may be settled."""
        self.meetings: Meetings[_Stream] = Meetings(links, self.changed.append, given)
        self.ranks = [_Rank(self, place, rank) for place, rank in enumerate(trace.ranks)]
        self.turns = [(rank.next_ns(), rank.place) for rank in self.ranks if rank.records]
        heapq.heapify(self.turns)

    def costs_of(self, place: int, device: int) -> _Costs:
        estimator = self.estimator_of(place, device)
        return self.costs.setdefault(id(estimator), _Costs(estimator))

    def run(self) -> tuple[RankRun, ...]:
        turns = self.turns
        while turns:
            rank = self.ranks[heapq.heappop(turns)[1]]
            rank.advance(turns[0][0] if turns else _FOREVER_NS)
            if rank.position < len(rank.records) and not rank.blocked:
                heapq.heappush(turns, (rank.next_ns(), rank.place))
        for rank in self.ranks:
            if rank.position == len(rank.records):
                rank.finish_waits()
        troubles = {rank.trace.rank: found for rank in self.ranks if (found := rank.troubles())}
        if troubles:
            raise stuck(troubles, {rank.trace.rank: rank.trace.stands_for for rank in self.ranks})
        return tuple(rank.run() for rank in self.ranks)

    def settle(self) -> None:
        """Find out all that can be known by now."""
        while self.changed:
            stream = self.changed.popleft()
            rank = stream.rank
            rank.drain(stream)
            if rank.blocked and rank.can_go_on():
                rank.blocked, rank.blocked_stream = "", None
                heapq.heappush(self.turns, (rank.next_ns(), rank.place))
