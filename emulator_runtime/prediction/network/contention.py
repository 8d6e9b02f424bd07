"""A replay in which collectives that run at once share their links, and take compute units from kernels beside them.

When a collective begins it isn't known what will begin beside it, so its end isn't known either, and the replay gives each call
its end at once. So a job is replayed with the times that everything takes alone; where collectives met on a link, it is replayed
again with the times that they then take, from where they began, until these times stay. What happened before a moment doesn't
depend on what is after it, so each replay is right at least up to one more encounter than the one before, and that one is right
which repeats itself. A job in which nothing meets is replayed once, and nothing in it changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from emulator_runtime.prediction.intervals import Interval, union
from emulator_runtime.prediction.links import SEND_RECEIVE, CollectiveEstimator
from emulator_runtime.prediction.meetings import GivenTimes
from emulator_runtime.prediction.network.fairness import Flow, shared_ends
from emulator_runtime.prediction.records import Collective, Communicator, Launch, Trace
from emulator_runtime.prediction.simulation import EstimatorOf, RankRun, simulate

MOST_REPLAYS = 12
_SAME, _SAME_NS = 1e-3, 1000
"""Times that differ less than by this part and this, are the same."""
_SIDE_OF_A_MESSAGE = 0.5

Key = tuple[str | int, int]
"""A collective: communicator's key and number; a rank's part in messages: the rank and the index of its record."""
Route = tuple[tuple[Hashable, float], ...]


class Routes(Protocol):
    """Knows which links a call uses (fabric.Fabric)."""

    def route(self, call: Collective, communicator: Communicator) -> Route: ...


@dataclass(frozen=True, slots=True)
class Contention:
    """`routes`: None: links aren't shared. `sm_share`: part of a device's compute units that collectives take (0 to below 1)."""

    routes: Routes | None
    sm_share: float = 0.0


@dataclass(frozen=True, slots=True)
class Replay:
    """`settled`: the times stayed, so that what the calls take is what they take from where they begin."""

    runs: tuple[RankRun, ...]
    replays: int = 1
    settled: bool = True


@dataclass(frozen=True, slots=True)
class _Call:
    key: Key
    record: Collective
    communicator: Communicator
    start_ns: int
    end_ns: int


def replay(trace: Trace, estimator_of: EstimatorOf, links: CollectiveEstimator, contention: Contention) -> Replay:
    """What each rank does. Raises what `simulate` raises."""
    runs = simulate(trace, estimator_of, links)
    if contention.routes is None and not contention.sm_share:
        return Replay(runs)
    calls = list(_calls(runs))
    alone = {call.key: call.end_ns - call.start_ns for call in calls}
    given = GivenTimes()
    for count in range(1, MOST_REPLAYS + 1):
        found = GivenTimes(
            _shared_times(calls, alone, contention.routes) if contention.routes is not None else {},
            _slowed_launches(runs, estimator_of, contention.sm_share) if contention.sm_share else {},
        )
        if _same(found, given, alone):
            return Replay(runs, count)
        if count == MOST_REPLAYS:
            break
        given = found
        runs = simulate(trace, estimator_of, links, given)
        calls = list(_calls(runs))
    return Replay(runs, MOST_REPLAYS, settled=False)


def _calls(runs: Sequence[RankRun]) -> Iterator[_Call]:
    """Collectives once, messages for each rank."""
    seen: set[Key] = set()
    for run in runs:
        rank, spans = run.trace, run.collectives
        for index, start_ns, end_ns in zip(spans.records, spans.starts_ns, spans.ends_ns, strict=True):
            record = rank.records[index]
            assert isinstance(record, Collective)
            communicator = rank.communicators[record.communicator]
            message = record.operation == SEND_RECEIVE
            key: Key = (rank.rank, index) if message else (communicator.key, record.number)
            if key not in seen:
                seen.add(key)
                yield _Call(key, record, communicator, start_ns, end_ns)


def _shared_times(calls: Sequence[_Call], alone: Mapping[Key, int], routes: Routes) -> dict[Key, int]:
    """Durations of the calls that take longer than alone."""
    meeting = _meeting([call for call in calls if alone[call.key]])
    if not meeting:
        return {}
    uses = _merged(_routes_of(meeting, routes))
    flows = [
        Flow(call.start_ns, alone[call.key], used, _SIDE_OF_A_MESSAGE if call.record.operation == SEND_RECEIVE else 1.0)
        for call, used in zip(meeting, uses, strict=True)
    ]
    ends = zip(meeting, shared_ends(flows), strict=True)
    return {call.key: end_ns - call.start_ns for call, end_ns in ends if end_ns - call.start_ns != alone[call.key]}


def _meeting(calls: Sequence[_Call]) -> list[_Call]:
    """Those that don't run alone, by when they begin."""
    ordered = sorted(calls, key=lambda call: call.start_ns)
    found: list[_Call] = []
    last: _Call | None = None
    for call in ordered:
        if last is not None and call.start_ns < last.end_ns:
            if not found or found[-1] is not last:
                found.append(last)
            found.append(call)
        if last is None or call.end_ns >= last.end_ns:
            last = call
    return list({id(call): call for call in found}.values())


def _routes_of(calls: Sequence[_Call], routes: Routes) -> list[Route]:
    """Equal ones are one object."""
    known: dict[Hashable, Route] = {}
    found = []
    for call in calls:
        record, communicator = call.record, call.communicator
        message = communicator.rank if record.operation == SEND_RECEIVE else -1
        key = communicator.key, record.operation, record.bytes, record.peers, message
        if key not in known:
            known[key] = routes.route(record, communicator)
        found.append(known[key])
    return found


def _merged(routes: Sequence[Route]) -> list[Route]:
    """The same routes with one link for all those that are used alike, such as the GPUs of a communicator."""
    distinct: dict[int, Route] = {id(route): route for route in routes}
    users: defaultdict[Hashable, list[tuple[int, float]]] = defaultdict(list)
    for name, route in distinct.items():
        for link, part in route:
            users[link].append((name, part))
    classes: dict[tuple[tuple[int, float], ...], int] = {}
    merged: defaultdict[int, dict[int, float]] = defaultdict(dict)
    for used in users.values():
        number = classes.setdefault(tuple(used), len(classes))
        for name, part in used:
            merged[name][number] = part
    return [tuple(merged[id(route)].items()) for route in routes]


def _slowed_launches(runs: Sequence[RankRun], estimator_of: EstimatorOf, share: float) -> dict[int, dict[int, int]]:
    """By rank and index: durations of launches that run beside collectives of their device, from when they begin."""
    found: dict[int, dict[int, int]] = {}
    for place, run in enumerate(runs):
        slowed: dict[int, int] = {}
        for device, busy in _busy(run).items():
            slowed |= _slowed_on(run, device, busy, estimator_of, place, share)
        if slowed:
            found[run.trace.rank] = slowed
    return found


def _busy(run: RankRun) -> dict[int, list[Interval]]:
    """When collectives run, by device."""
    times: defaultdict[int, list[Interval]] = defaultdict(list)
    spans = run.collectives
    for index, start_ns, end_ns in zip(spans.records, spans.starts_ns, spans.ends_ns, strict=True):
        record = run.trace.records[index]
        assert isinstance(record, Collective)
        times[record.device].append((start_ns, end_ns))
    return {device: union(intervals) for device, intervals in times.items()}


def _slowed_on(
    run: RankRun, device: int, busy: Sequence[Interval], estimator_of: EstimatorOf, place: int, share: float
) -> dict[int, int]:
    estimator, durations = estimator_of(place, device), dict[int, int]()
    launches = []
    for index, start_ns, end_ns in zip(
        run.device_work.records, run.device_work.starts_ns, run.device_work.ends_ns, strict=True
    ):
        record = run.trace.records[index]
        if isinstance(record, Launch) and record.device == device and end_ns > start_ns:
            if id(record.work) not in durations:
                durations[id(record.work)] = estimator.work(record.work).duration_ns
            launches.append((start_ns, index, durations[id(record.work)]))
    found, first = {}, 0
    for start_ns, index, alone_ns in sorted(launches):
        while first < len(busy) and busy[first][1] <= start_ns:
            first += 1
        taken_ns = slowed_ns(start_ns, alone_ns, busy, share, first)
        if taken_ns != alone_ns:
            found[index] = taken_ns
    return found


def slowed_ns(start_ns: int, work_ns: int, busy: Sequence[Interval], share: float, first: int = 0) -> int:
    """How long work takes that proceeds at 1 - `share` of its rate during the intervals of `busy`, of which those before number
    `first` end before it begins. Example: 10 from 0 on with half the rate from 4 to 8: 4 alone, 4 for 2, 4 alone: 12."""
    at_ns, left_ns = float(start_ns), float(work_ns)
    for begin_ns, end_ns in busy[first:]:
        if begin_ns > at_ns:
            if left_ns <= begin_ns - at_ns:
                break
            left_ns -= begin_ns - at_ns
            at_ns = float(begin_ns)
        done_ns = (end_ns - at_ns) * (1 - share)
        if left_ns <= done_ns:
            return round(at_ns + left_ns / (1 - share)) - start_ns
        left_ns -= done_ns
        at_ns = float(end_ns)
    return round(at_ns + left_ns) - start_ns


def _same(found: GivenTimes, given: GivenTimes, alone: Mapping[Key, int]) -> bool:
    """Whether a replay with one would be one with the other."""
    keys = {*found.calls, *given.calls}
    if any(_differ(found.calls.get(key, alone[key]), given.calls.get(key, alone[key])) for key in keys):
        return False
    ranks = {*found.launches, *given.launches}
    for rank in ranks:
        one, other = found.launches.get(rank, {}), given.launches.get(rank, {})
        if one.keys() != other.keys() or any(_differ(one[index], other[index]) for index in one):
            return False
    return True


def _differ(one_ns: int, other_ns: int) -> bool:
    return abs(one_ns - other_ns) > max(_SAME_NS, _SAME * other_ns)
