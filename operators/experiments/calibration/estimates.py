"""How each cost is computed from the observations of probe jobs. Pure; no job of the experiment itself is used.

The scheduler is part of every cost: a start counts from the moment at which the scheduler read the cluster's state for its
decision until the first step begins; a finish lasts from the end of the last step until the scheduler next reads the cluster's
state for a decision. So a cost contains the API request, the Job controller, the kubelet, the container's start and the watch
event that comes back. Medians are used, since one slow image pull says nothing about the other starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, pairwise
from statistics import median
from typing import TypeVar

from emulator_runtime.domain.units import to_s
from operators.experiments.calibration.observations import Observations, ProbeRun, ProbeStop

Costs = Mapping[str, float]
Estimate = Callable[[Observations, Costs], float]
"""Seconds of one cost, from the observations. Those in DERIVED also use the costs that aren't in it."""
O = TypeVar("O", ProbeRun, ProbeStop)  # noqa: E741


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


def serial_start_s(seen: Observations, _costs: Costs) -> float:
    """Of jobs started by one decision: from one job's first step to the next one's."""
    return slope_s(*([run.begin_ns for run in burst] for burst in _bursts(seen)))


def shared_start_s(seen: Observations, costs: Costs) -> float:
    """By how much the first of n jobs started by one decision begins later than one alone, divided by n - 1.

    Example: alone 2.0 s; of a burst of 5 the first begins after 2.8 s: 0.2 s.
    """
    late_s = [
        (run.start_s - position * costs["serial_start_s"] - costs["start_s"]) / (len(burst) - 1)
        for burst in _bursts(seen)
        if len(burst) > 1
        for position, run in enumerate(burst)
    ]
    return max(0.0, median(late_s)) if late_s else 0.0


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


DERIVED = ("serial_submit_s", "shared_start_s", "restart_s")
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


def _bursts(seen: Observations) -> list[list[ProbeRun]]:
    return [same_decision(seen.runs_of(name), lambda run: run.begin_ns) for name in ("burst", "wide")]


def _batches(seen: Observations) -> list[Sequence[ProbeRun]]:
    """Jobs that were submitted at once."""
    return [batch for name in ("burst", "wide", "chain") if len(batch := seen.runs_of(name)) > 1]


def _decided_s(batch: Sequence[ProbeRun]) -> float:
    """From the first submission of a batch to the first decision about it."""
    return to_s(min(run.asked_ns for run in batch) - min(run.submitted_ns for run in batch))
