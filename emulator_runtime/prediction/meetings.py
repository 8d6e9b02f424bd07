"""Where ranks meet: collectives that begin when the last rank has come, and messages that begin when both sides have."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from emulator_runtime.domain.errors import DeadlockError, InputError
from emulator_runtime.prediction.links import OPERATIONS, SEND_RECEIVE, CollectiveEstimator
from emulator_runtime.prediction.records import Collective, Communicator, RankTrace

_NAMED = 8
"""So many of many are named in a message."""

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class GivenTimes:
    """Durations (ns) that are known otherwise than by estimators. `calls`: by communicator and number, or by rank and index of
    the record for messages. `launches`: by rank and index."""

    calls: Mapping[tuple[str | int, int], int] = field(default_factory=dict)
    launches: Mapping[int, Mapping[int, int]] = field(default_factory=dict)


NOTHING_GIVEN = GivenTimes()


class Call(Generic[S]):
    """A rank's part in a collective, in the queue of `stream`. `arrival_ns`: when its stream came to it.
    `start_ns`: when all were there."""

    __slots__ = (
        "arrival_ns",
        "arrived",
        "communicator",
        "end_ns",
        "issued_ns",
        "missing",
        "position",
        "rank",
        "record",
        "start_ns",
        "stream",
    )

    def __init__(self, stream: S, rank: RankTrace, position: int, issued_ns: int) -> None:
        record = rank.records[position]
        assert isinstance(record, Collective)
        self.stream, self.rank, self.position, self.record, self.issued_ns = stream, rank, position, record, issued_ns
        communicator = rank.communicators.get(record.communicator)
        if communicator is None:
            raise InputError(self.place, f"the trace has no communicator {record.communicator}")
        if record.operation not in OPERATIONS:
            raise InputError(
                self.place, f"unknown operation {record.operation!r}; known: {', '.join(sorted(OPERATIONS))}"
            )
        self.communicator: Communicator = communicator
        self.arrived = False
        self.arrival_ns = self.start_ns = 0
        self.end_ns = -1
        self.missing = 0

    @property
    def seat(self) -> int:
        """By what the rank is known in the communicator."""
        return self.communicator.seat(self.communicator.rank)

    @property
    def place(self) -> str:
        return f"rank {self.rank.rank}, record {self.position}"

    @property
    def title(self) -> str:
        """Such as "all_reduce of 4096 bytes"."""
        return f"{self.record.operation} of {self.record.bytes} bytes"


class Meetings(Generic[S]):
    """Who has come to what."""

    def __init__(
        self, links: CollectiveEstimator, settled: Callable[[S], None], given: GivenTimes = NOTHING_GIVEN
    ) -> None:
        """`settled` is called with the stream of each call whose end becomes known."""
        self._links, self._settled, self._given = links, settled, given.calls
        self._meetings: defaultdict[tuple[str, int], dict[int, Call[S]]] = defaultdict(dict)
        """The calls so far, by rank of the communicator."""
        self._sends: defaultdict[tuple[str, int, int], deque[Call[S]]] = defaultdict(deque)
        self._receives: defaultdict[tuple[str, int, int], deque[Call[S]]] = defaultdict(deque)
        self._durations: dict[tuple[str, str, int], int] = {}
        self._seats: dict[str, int] = {}
        """How many must come, by communicator."""

    def arrive(self, call: Call[S], arrival_ns: int) -> None:
        """A stream has come to its call. Raises InputError if other ranks do something else at this place."""
        call.arrived, call.arrival_ns = True, arrival_ns
        call.start_ns = arrival_ns
        if call.record.operation == SEND_RECEIVE:
            self._exchange(call)
        else:
            self._join(call)

    def _join(self, call: Call[S]) -> None:
        communicator, record = call.communicator, call.record
        key = communicator.key, record.number
        calls = self._meetings[key]
        if calls:
            self._check(call, next(iter(calls.values())))
        calls[call.seat] = call
        if len(calls) < self._seats_of(communicator):
            return
        del self._meetings[key]
        start_ns = max(each.arrival_ns for each in calls.values())
        duration_ns = self._duration_ns(call)
        for each in calls.values():
            each.start_ns = start_ns
            self._end(each, duration_ns)

    def _seats_of(self, communicator: Communicator) -> int:
        if communicator.key not in self._seats:
            self._seats[communicator.key] = len(communicator.all_seats)
        return self._seats[communicator.key]

    def _check(self, call: Call[S], other: Call[S]) -> None:
        communicator, record = call.communicator, call.record
        place = f"number {record.number} of communicator {communicator.key}"
        if call.seat in self._meetings[communicator.key, record.number]:
            raise InputError(call.place, f"rank {call.seat} comes a second time to {place}")
        if (other.record.operation, other.record.bytes) != (record.operation, record.bytes):
            raise InputError(call.place, f"{place} is {call.title}, but {other.title} in {other.place}")

    def _exchange(self, call: Call[S]) -> None:
        """Messages from one rank to another are matched in their order; a call begins when all of its messages can."""
        key, own = call.communicator.key, call.seat
        call.missing = 1  # itself, so that it doesn't begin before all of its messages are looked at
        for rank, to_peer, from_peer in call.record.peers:
            peer = call.communicator.seat(rank)
            if to_peer:
                self._message(call, self._sends[key, own, peer], self._receives[key, own, peer])
            if from_peer:
                self._message(call, self._receives[key, peer, own], self._sends[key, peer, own])
        self._matched(call)

    def _message(self, call: Call[S], own_side: deque[Call[S]], other_side: deque[Call[S]]) -> None:
        if not other_side:
            call.missing += 1
            own_side.append(call)
            return
        other = other_side.popleft()
        call.start_ns = max(call.start_ns, other.arrival_ns)
        other.start_ns = max(other.start_ns, call.arrival_ns)
        self._matched(other)

    def _matched(self, call: Call[S]) -> None:
        call.missing -= 1
        if call.missing == 0:
            given_ns = self._given.get((call.rank.rank, call.position)) if self._given else None
            alone_ns = self._links.duration_ns(call.record, call.communicator) if given_ns is None else given_ns
            self._end(call, alone_ns)

    def _duration_ns(self, call: Call[S]) -> int:
        if self._given:
            given_ns = self._given.get((call.communicator.key, call.record.number))
            if given_ns is not None:
                return given_ns
        key = call.communicator.key, call.record.operation, call.record.bytes
        if key not in self._durations:
            self._durations[key] = self._links.duration_ns(call.record, call.communicator)
        return self._durations[key]

    def _end(self, call: Call[S], duration_ns: int) -> None:
        call.end_ns = call.start_ns + duration_ns
        self._settled(call.stream)

    def waits_for(self, call: Call[S]) -> str:
        """What a call that has come waits for, in words."""
        communicator, record = call.communicator, call.record
        if record.operation == SEND_RECEIVE:
            absent = self._partners_missing(call)
        else:
            absent = set(communicator.all_seats - set(self._meetings[communicator.key, record.number]))
        ranks = _named([str(rank) for rank in sorted(absent)])
        whose = "the job's" if communicator.seats else "its"
        what = f"{record.operation} number {record.number} of communicator {communicator.key} (record {call.position})"
        return f"waits in {what} for {whose} rank{'s' * (len(absent) > 1)} {ranks}"

    def _partners_missing(self, call: Call[S]) -> set[int]:
        key, own = call.communicator.key, call.seat
        return {
            peer
            for peer in map(call.communicator.seat, (rank for rank, _, _ in call.record.peers))
            if call in self._sends[key, own, peer] or call in self._receives[key, peer, own]
        }


def stuck(troubles: Mapping[int, Sequence[str]], stand_for: Mapping[int, int] | None = None) -> DeadlockError:
    """The error for ranks that can't go on, by rank, each with the reasons. `stand_for`: how many ranks such a rank is."""
    lines = [
        f"rank {rank}{_others((stand_for or {}).get(rank, 1))}: {', '.join(found)}"
        for rank, found in sorted(troubles.items())
    ]
    return DeadlockError(f"the ranks of this trace wait for ever; {_named(lines, '; ')}")


def _others(stands_for: int) -> str:
    return f" (and {stands_for - 1} that it stands for)" if stands_for > 1 else ""


def _named(names: Sequence[str], between: str = ", ") -> str:
    more = f"{between}and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return between.join(names[:_NAMED]) + more
