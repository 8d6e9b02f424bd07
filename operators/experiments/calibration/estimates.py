"""How each cost is computed from the observations of probe jobs. Pure; no job of the experiment itself is used.

The scheduler is part of every cost: a start counts from the moment at which the scheduler read the cluster's state for its
decision until the first step begins; a finish lasts from the end of the last step until the scheduler next reads the cluster's
state for a decision. So a cost contains the API request, the Job controller, the kubelet, the container's start and the watch
event that comes back. Medians are used, since one slow image pull says nothing about the other starts.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, pairwise
from statistics import median
from typing import TypeVar

from emulator_runtime.domain.units import to_ns, to_s
from operators.experiments.calibration.observations import Observations, ProbeRun, ProbeStop
from scheduler_sims.clusters.host_share import HostShare

Costs = Mapping[str, float]
Estimate = Callable[[Observations, Costs], float]
"""Seconds of one cost, from the observations. Those in DERIVED also use the costs that aren't in it."""
O = TypeVar("O", ProbeRun, ProbeStop)  # noqa: E741

_FIRST_GRID, _NEXT_GRID = 10, 4
"""Points of a grid on each side of its centre."""
_FINEST = 1e-4


@dataclass(frozen=True, slots=True)
class Burst:
    """Jobs that one decision started: from the decision to their first steps, in that order; and how long each one ran."""

    starts_s: tuple[float, ...]
    ran_s: float

    def predicted_s(self, spacing_s: float, slots: float, start_s: float, finish_s: float) -> list[float]:
        """As simulated: starts `spacing_s` apart share the machines with each other and with the first ends."""
        share, begins_s = HostShare[bool](slots), list[float]()
        arrivals = [(to_ns(spacing_s * number), True) for number in range(len(self.starts_s))]
        while len(begins_s) < len(self.starts_s):
            due_ns = share.next_ns()
            if due_ns is None or (arrivals and arrivals[0][0] <= due_ns):
                at_ns, starts = heapq.heappop(arrivals)
                share.add(at_ns, starts, to_ns(start_s if starts else finish_s))
                continue
            begun = sum(share.take(due_ns))
            begins_s += [to_s(due_ns)] * begun
            for _ in range(begun):
                heapq.heappush(arrivals, (due_ns + to_ns(self.ran_s), False))
        return begins_s


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
    return _burst_costs(_bursts(seen), costs["start_s"], costs["finish_s"])[0]


def host_slots(seen: Observations, costs: Costs) -> float:
    """How many starts and ends of a burst the machines carry out at full speed; 0: as many as there were.

    Example: alone 2.0 s; all of a burst of 3 begin after 4.0 s: 1.5.
    """
    return _burst_costs(_bursts(seen), costs["start_s"], costs["finish_s"])[1]


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


DERIVED = ("serial_submit_s", "serial_start_s", "host_slots", "restart_s")
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


def _bursts(seen: Observations) -> tuple[Burst, ...]:
    """Those that one decision started."""
    together = (same_decision(seen.runs_of(name), lambda run: run.begin_ns) for name in ("burst", "wide"))
    return tuple(
        Burst(tuple(run.start_s for run in runs), median(to_s(run.end_ns - run.begin_ns) for run in runs))
        for runs in together
        if len(runs) > 1
    )


@lru_cache(maxsize=4)
def _burst_costs(bursts: tuple[Burst, ...], start_s: float, finish_s: float) -> tuple[float, float]:
    """The spacing of starts and the number of slots under which the simulator's machines come closest to the bursts; the larger
    number where several come equally close.

    Closest by the sum of absolute differences, so that a straggler hardly counts. The sum has several minima, and an evaluation
    takes less than a millisecond: so a grid over both, then finer ones around its best point. The grid's second axis is
    1 / slots, the share of the machines that one start takes.
    """
    if not bursts or not start_s:
        return slope_s(*([to_ns(each) for each in burst.starts_s] for burst in bursts)), 0.0
    least = 1 / max(len(burst.starts_s) for burst in bursts)

    def off_s(point: tuple[float, float]) -> float:
        spacing_s, share = point
        slots = 1 / max(share, least)
        return sum(
            abs(predicted - observed)
            for burst in bursts
            for predicted, observed in zip(
                burst.predicted_s(spacing_s, slots, start_s, finish_s), burst.starts_s, strict=True
            )
        )

    reach_s = max(burst.starts_s[-1] / (len(burst.starts_s) - 1) for burst in bursts) / 2
    best, reach, number = (reach_s, 0.5), 0.5, _FIRST_GRID
    while reach > _FINEST:
        steps = range(-number, number + 1)
        grid = [
            (max(0.0, best[0] + reach_s * i / number), min(1.0, max(0.0, best[1] + reach * j / number)))
            for i in steps
            for j in steps
        ]
        best = min([best, *grid], key=lambda point: (round(off_s(point), 3), point[1], point[0]))
        reach_s, reach, number = reach_s / 2, reach / 2, _NEXT_GRID
    spacing_s, share = best
    return spacing_s, 1 / share if share > least else 0.0


def _batches(seen: Observations) -> list[Sequence[ProbeRun]]:
    """Jobs that were submitted at once."""
    return [batch for name in ("burst", "wide", "chain") if len(batch := seen.runs_of(name)) > 1]


def _decided_s(batch: Sequence[ProbeRun]) -> float:
    """From the first submission of a batch to the first decision about it."""
    return to_s(min(run.asked_ns for run in batch) - min(run.submitted_ns for run in batch))
