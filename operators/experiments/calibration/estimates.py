"""How each cost is computed from the observations of probe jobs. Pure; no job of the experiment itself is used.

The scheduler is part of every cost: a start counts from the moment at which the scheduler read the cluster's state for its
decision until the first step begins; a finish lasts from the end of the last step until the scheduler next reads the cluster's
state for a decision. So a cost contains the API request, the Job controller, the kubelet, the container's start and the watch
event that comes back. Medians are used, since one slow image pull says nothing about the other starts.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, lru_cache
from itertools import combinations, pairwise
from statistics import median
from typing import TypeVar

from emulator_runtime.domain.units import to_ns, to_s
from operators.experiments.calibration.observations import Observations, ProbeRun, ProbeStop
from scheduler_sims.clusters.host_share import HostShare, ends_ns

Costs = Mapping[str, float]
Estimate = Callable[[Observations, Costs], float]
"""Seconds of one cost, from the observations. Those in DERIVED also use the costs that aren't in it."""
O = TypeVar("O", ProbeRun, ProbeStop)  # noqa: E741

_FIRST_GRID, _NEXT_GRID = 10, 4
"""Points of a grid on each side of its centre."""
_STARTING_POINTS = 3
"""So many of the first grid's best points are followed."""
_FINEST = 1e-4
_PER_SLOT = 20
"""Points of the grid on which the slots of programs are sought."""


class _Step(IntEnum):
    """What happens on the machines; of one instant, in this order."""

    ENDED = 0
    PLACE_ENDED = 1
    DECIDED = 2
    STARTED = 3


@dataclass(frozen=True, slots=True)
class Overlap:
    """Starts and ends that overlap; seconds from the first decision (or end) on.

    `begins_s`: the first steps that were observed, in order. Either one decision at 0 started all of these jobs, or each of them
    took the place of a job that ended at `ends_s`, once the scheduler had gathered events for `coalesce_s`. Each ran for `ran_s`.
    """

    begins_s: tuple[float, ...]
    ran_s: float
    ends_s: tuple[float, ...] = ()
    coalesce_s: float = 0.0

    def predicted_s(self, spacing_s: float, slots: float, start_s: float, finish_s: float) -> list[float]:
        """`begins_s` as simulated: starts go out `spacing_s` apart, and share the machines with each other and with ends."""
        work_ns = {_Step.STARTED: to_ns(start_s), _Step.ENDED: to_ns(finish_s), _Step.PLACE_ENDED: to_ns(finish_s)}
        share, begins_ns, line_ns, free = HostShare[_Step](slots), list[int](), 0, 0
        ahead = [(to_ns(end_s), _Step.PLACE_ENDED) for end_s in self.ends_s]
        if not ahead:
            ahead, free = [(0, _Step.DECIDED)], len(self.begins_s)
        while len(begins_ns) < len(self.begins_s):
            due_ns = share.next_ns()
            if due_ns is None or (ahead and ahead[0][0] < due_ns):
                at_ns, step = heapq.heappop(ahead)
                if step is not _Step.DECIDED:
                    share.add(at_ns, step, work_ns[step])
                    continue
                for _ in range(free):
                    line_ns = max(line_ns, at_ns)
                    heapq.heappush(ahead, (line_ns, _Step.STARTED))
                    line_ns += to_ns(spacing_s)
                free = 0
                continue
            for done in share.take(due_ns):
                if done is _Step.STARTED:
                    begins_ns.append(due_ns)
                    heapq.heappush(ahead, (due_ns + to_ns(self.ran_s), _Step.ENDED))
                elif done is _Step.PLACE_ENDED:
                    if not free:
                        heapq.heappush(ahead, (due_ns + to_ns(self.coalesce_s), _Step.DECIDED))
                    free += 1
        return [to_s(begin_ns) for begin_ns in begins_ns]


def submit_s(seen: Observations, _costs: Costs) -> float:
    """From the submission of a job alone until the scheduler decides about it."""
    return max(0.0, median(_decided_s([run]) for run in seen.runs_of("alone")) - seen.coalesce_s)


def serial_submit_s(seen: Observations, costs: Costs) -> float:
    """How much later the scheduler decides about n jobs submitted at once than about one alone, divided by n - 1."""
    batches = _batches(seen)
    more_s = [_decided_s(batch) - seen.coalesce_s - costs["submit_s"] for batch in batches]
    return max(0.0, median(more / (len(batch) - 1) for more, batch in zip(more_s, batches, strict=True)))


def arrive_s(seen: Observations, _costs: Costs) -> float:
    """How far apart the operator sees jobs that were submitted at the same instant (seconds from one to the next)."""
    return slope_s([run.submitted_ns for run in max(_batches(seen), key=len)])


def start_s(seen: Observations, _costs: Costs) -> float:
    """From the decision to start a job until its first step begins, where no other job starts."""
    return max(0.0, median(run.start_s for run in seen.runs_of("chain")))


def serial_start_s(seen: Observations, costs: Costs) -> float:
    """Of jobs started by one decision: how far apart the machines begin with them."""
    return _overlap_costs(_overlaps(seen), costs["start_s"], costs["finish_s"])[0]


def host_slots(seen: Observations, costs: Costs) -> float:
    """How many starts and ends the machines carry out at full speed; 0: as many as there were.

    Example: alone 2.0 s; all of a burst of 3 begin after 4.0 s: 1.5.
    """
    return _overlap_costs(_overlaps(seen), costs["start_s"], costs["finish_s"])[1]


def program_start_s(seen: Observations, costs: Costs) -> float:
    """By how much longer a program that runs alone takes to begin than emulated training."""
    alone, _ = _programs(seen)
    return max(0.0, alone.start_s - costs["start_s"]) if alone else 0.0


def program_slots(seen: Observations, _costs: Costs) -> float:
    """How many programs that compute the machines carry out at full speed; 0: as many as there were.

    Example: one alone takes 3 s, each of four at once 6 s: 2.
    """
    alone, together = _programs(seen)
    if alone is None:
        return 0.0
    work_ns, since_ns = alone.end_ns - alone.begin_ns, together[0].begin_ns
    pieces = [(run.begin_ns - since_ns, work_ns) for run in together]
    observed_ns = sorted(run.end_ns - since_ns for run in together)

    def off_s(slots: float) -> float:
        predicted_ns = sorted(ends_ns(slots, pieces))
        return round(sum(abs(to_s(one - other)) for one, other in zip(observed_ns, predicted_ns, strict=True)), 3)

    grid = [1 + number / _PER_SLOT for number in range((len(together) - 1) * _PER_SLOT + 1)]
    slots = min(grid, key=lambda slots: (off_s(slots), -slots))
    return slots if slots < len(together) else 0.0


def _programs(seen: Observations) -> tuple[ProbeRun | None, Sequence[ProbeRun]]:
    """The program that ran alone, and those that ran together. None and none if one is missing: which was alone isn't known."""
    runs = seen.runs_of("programs")
    return (runs[0], runs[1:]) if len(runs) >= max(2, seen.planned.get("programs", 0)) else (None, ())


def finish_s(seen: Observations, _costs: Costs) -> float:
    """From the end of a job's last step until the scheduler decides about its device."""
    gaps_s = [to_s(after.asked_ns - before.end_ns) for before, after in pairwise(seen.runs_of("chain"))]
    return max(0.0, median(gaps_s) - seen.coalesce_s)


def stop_s(seen: Observations, _costs: Costs) -> float:
    """From the decision to stop a job until the scheduler decides about its device."""
    freed_s = [to_s(stop.next_asked_ns - stop.asked_ns) - seen.coalesce_s for stop in seen.stops_of("stops")]
    return max(0.0, median(freed_s)) if freed_s else 0.0


def restart_s(seen: Observations, costs: Costs) -> float:
    """By how much longer a resumed job takes to start than a new one."""
    starts_s = [stop.again.start_s for stop in seen.stops_of("stops")]
    return max(0.0, median(starts_s) - costs["start_s"]) if starts_s else 0.0


def serial_stop_s(seen: Observations, _costs: Costs) -> float:
    """Of jobs stopped by one decision: how much later each further one ends its last step.

    Jobs that could not be observed lie anywhere among those that could, which makes observed gaps longer: of 12 stopped jobs
    with 5 observed, gaps are (12 + 1) / (5 + 1) times as long on average.
    """
    together = same_decision(seen.stops_of("together"), lambda stop: stop.end_ns)
    if len(together) < 2:
        return 0.0
    share = (len(together) + 1) / (together[0].others + 2)
    return slope_s([stop.end_ns for stop in together]) * share


def shared_stop_s(seen: Observations, _costs: Costs) -> float:
    """By how much longer a place takes to be free after one of n stops of a decision than after a stop alone, by n - 1.

    The scheduler gathers events, so of stops that it learns about together only the first to end shows how long that takes.
    """
    together = same_decision(seen.stops_of("together"), lambda stop: stop.end_ns)
    alone = seen.stops_of("stops")
    first = {stop.next_asked_ns: stop for stop in reversed(together)}
    if not together or not together[0].others or not alone:
        return 0.0
    more_s = median(stop.freed_s for stop in first.values()) - median(stop.freed_s for stop in alone)
    return max(0.0, more_s / together[0].others)


DERIVED = ("serial_submit_s", "serial_start_s", "host_slots", "restart_s", "program_start_s")
"""Costs that are computed from others, and so after them."""


def same_decision(observed: Sequence[O], at_ns: Callable[[O], int]) -> list[O]:
    """The largest group that one decision started (or stopped), in the order of `at_ns`."""
    asked = Counter(each.asked_ns for each in observed).most_common(1)
    return sorted((each for each in observed if each.asked_ns == asked[0][0]), key=at_ns)


def most_at_once(observed: Sequence[ProbeRun] | Sequence[ProbeStop]) -> int:
    """The size of the largest group that one decision started (or stopped)."""
    return max(Counter(each.asked_ns for each in observed).values(), default=0)


def slope_s(*groups: Sequence[int]) -> float:
    """How much later the next of a group comes: the median over all pairs within a group (Theil and Sen), so that a few
    stragglers don't count. A larger group, which shows it better, has more pairs."""
    slopes = [
        to_s(b - a) / (j - i) for times_ns in groups for (i, a), (j, b) in combinations(enumerate(sorted(times_ns)), 2)
    ]
    return median(slopes) if slopes else 0.0


def _overlaps(seen: Observations) -> tuple[Overlap, ...]:
    """The bursts, of which only what one decision started, and the hand-overs of many places."""
    together = (same_decision(seen.runs_of(name), lambda run: run.begin_ns) for name in ("burst", "wide"))
    bursts = [
        Overlap(tuple(run.start_s for run in runs), median(to_s(run.end_ns - run.begin_ns) for run in runs))
        for runs in together
        if len(runs) > 1
    ]
    return (*bursts, *_turnovers(seen))


def _turnovers(seen: Observations) -> Iterator[Overlap]:
    """The hand-overs of the probe; none where a job is missing, since then it isn't known which end let which job start."""
    runs = sorted(seen.runs_of("turnover"), key=lambda run: run.asked_ns)
    if not runs or len(runs) < seen.planned.get("turnover", 0):
        return
    half = len(runs) // 2
    ends_ns = sorted(run.end_ns for run in runs[:half])
    begins_ns = sorted(run.begin_ns for run in runs[half:])
    ran_s = median(to_s(run.end_ns - run.begin_ns) for run in runs[half:])
    ends_s, begins_s = (tuple(to_s(at_ns - ends_ns[0]) for at_ns in times) for times in (ends_ns, begins_ns))
    yield Overlap(begins_s, ran_s, ends_s, seen.coalesce_s)


@lru_cache(maxsize=4)
def _overlap_costs(overlaps: tuple[Overlap, ...], start_s: float, finish_s: float) -> tuple[float, float]:
    """The spacing of starts and the number of slots under which the simulator's machines come closest to what was observed; the
    larger number where several come equally close.

    Closest by the sum of absolute differences, so that a straggler hardly counts. The sum has several minima, and an evaluation
    takes about a millisecond: so a grid over both, then finer ones around each of its best points. The grid's second axis is
    1 / slots, the share of the machines that one start takes.
    """
    bursts = [overlap for overlap in overlaps if not overlap.ends_s]
    if not bursts:
        return 0.0, 0.0
    least = 1 / max(len(overlap.begins_s) for overlap in overlaps)

    def off_s(point: tuple[float, float]) -> float:
        spacing_s, share = point
        slots = 1 / max(share, least)
        return sum(
            abs(predicted - observed)
            for overlap in overlaps
            for predicted, observed in zip(
                overlap.predicted_s(spacing_s, slots, start_s, finish_s), overlap.begins_s, strict=True
            )
        )

    @cache
    def rank(point: tuple[float, float]) -> tuple[float, float, float]:
        return round(off_s(point), 3), point[1], point[0]

    reach_s, reach = max(burst.begins_s[-1] / (len(burst.begins_s) - 1) for burst in bursts) / 2, 0.5
    found = sorted(set(_grid((reach_s, reach), (reach_s, reach), _FIRST_GRID)), key=rank)[:_STARTING_POINTS]
    while (reach := reach / 2) > _FINEST:
        reach_s /= 2
        found = [min(_grid(point, (reach_s, reach), _NEXT_GRID), key=rank) for point in dict.fromkeys(found)]
    spacing_s, share = min(found, key=rank)
    return spacing_s, 1 / share if share > least else 0.0


def _grid(centre: tuple[float, float], reach: tuple[float, float], number: int) -> list[tuple[float, float]]:
    """Points of which the first coordinate is at least 0 and the second one from 0 to 1, with the centre among them."""
    steps = [step / number for step in range(-number, number + 1)]
    return [
        (max(0.0, centre[0] + reach[0] * i), min(1.0, max(0.0, centre[1] + reach[1] * j))) for i in steps for j in steps
    ]


def _batches(seen: Observations) -> list[Sequence[ProbeRun]]:
    """Jobs that were submitted at once."""
    return [batch for name in ("burst", "wide", "chain") if len(batch := seen.runs_of(name)) > 1]


def _decided_s(batch: Sequence[ProbeRun]) -> float:
    """From the first submission of a batch to the first decision about it."""
    return to_s(min(run.asked_ns for run in batch) - min(run.submitted_ns for run in batch))
