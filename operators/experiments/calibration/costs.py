"""What starting, stopping and handing over cost on a cluster, from what probe jobs showed; nothing of an experiment is looked at.

The scheduler is in all figures: from the moment at which it saw the cluster for a decision until a first step begins, and from
the end of a last step until such a moment. So a cost contains the patch, the Job controller, the kubelet, the container's start
and the way back of the news. Medians, because one slow pull of an image tells nothing about the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations, pairwise
from statistics import median
from typing import TypeVar

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.domain.units import to_s
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.record import RunRecord

SHARE_OF_MEAN_JCT = 0.05
"""Costs above this share of the mean JCT are a warning: then the cluster's own doing is a large part of the result."""
KINDS = {
    "alone": ("submitted alone", "submit_s"),
    "burst": ("started at once", "serial_start_s and shared_start_s"),
    "wide": ("of the larger burst", "serial_start_s and shared_start_s"),
    "chain": ("started one after the other", "start_s and finish_s"),
    "stops": ("stopped alone", "stop_s and restart_s"),
    "together": ("stopped at once", "serial_stop_s and shared_stop_s"),
}
"""The kinds of probes, in words, and what each of them tells."""


@dataclass(frozen=True, slots=True)
class ProbeRun:
    """One run of a probe job; nanoseconds since 1970. `asked_ns`: when the scheduler decided to start it.

    `begin_ns`: when its first step began, `end_ns`: when its last one ended.
    """

    submitted_ns: int
    asked_ns: int
    begin_ns: int
    end_ns: int

    @property
    def start_s(self) -> float:
        return to_s(self.begin_ns - self.asked_ns)


@dataclass(frozen=True, slots=True)
class ProbeStop:
    """A run that was taken away: when the scheduler decided so, when its last step ended, when it decided who is next there.

    `again`: the run in which the stopped job went on later. `others`: how many more that decision stopped, whether or not
    anything is known of them.
    """

    asked_ns: int
    end_ns: int
    next_asked_ns: int
    again: ProbeRun
    others: int = 0


Probe = TypeVar("Probe", ProbeRun, ProbeStop)


@dataclass(frozen=True, slots=True)
class Probes:
    """`alone`: submitted when nothing else was; `burst`: submitted and started at once; `chain`: submitted at once, started one
    after the other on one device, in this order; `stops`: one after the other; `together`: stops of one decision. `wide`: a
    larger burst, where there is room.

    `coalesce_s`: with which the scheduler gathered events meanwhile. `planned`: how many were to be of each of KINDS.
    """

    alone: Sequence[ProbeRun]
    burst: Sequence[ProbeRun]
    chain: Sequence[ProbeRun]
    stops: Sequence[ProbeStop] = ()
    together: Sequence[ProbeStop] = ()
    wide: Sequence[ProbeRun] = ()
    coalesce_s: float = 0.0
    planned: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured, seconds; `costs` are the same in the simulator's words.

    `arrive_s`: from one submission of many at once to the next. `submit_s`: from a submission alone until the scheduler decides,
    `serial_submit_s`: more for each further one at once. `start_s`: from a decision to the first step. `serial_start_s`: more
    for each further start of a burst; `shared_start_s`: more for each of them, for each other one. `restart_s`: more for a
    job that goes on. `finish_s`: from the end of a last step until the scheduler decides about the device. `stop_s`: from the
    decision to stop a job until then; `serial_stop_s`: so much later each further job of a decision hears that it is to stop,
    `shared_stop_s`: so much longer its device takes to be free, for each other one. The time for which the scheduler gathered
    events (`coalesce_s`) is in none of them. `notes`: what is known badly, because probes were lost.
    """

    alone: int
    burst: int
    wide: int
    chain: int
    stops: int
    together: int
    coalesce_s: float
    arrive_s: float
    submit_s: float
    serial_submit_s: float
    start_s: float
    serial_start_s: float
    shared_start_s: float
    finish_s: float
    stop_s: float
    serial_stop_s: float
    shared_stop_s: float
    restart_s: float
    notes: tuple[str, ...] = ()

    @property
    def hand_over_s(self) -> float:
        """From the end of a job's last step until the next job's first one begins on the same device."""
        return self.finish_s + self.coalesce_s + self.start_s

    def costs(self, coalesce_s: float) -> ClusterCosts:
        """For a scheduler that gathers events for `coalesce_s`."""
        return ClusterCosts(
            submit_s=self.submit_s,
            serial_submit_s=self.serial_submit_s,
            coalesce_s=coalesce_s,
            start_s=self.start_s,
            restore_s=self.restart_s,
            serial_start_s=self.serial_start_s,
            shared_start_s=self.shared_start_s,
            stop_s=self.stop_s,
            serial_stop_s=self.serial_stop_s,
            shared_stop_s=self.shared_stop_s,
            finish_s=self.finish_s,
        )

    def figures(self) -> dict[str, float]:
        """By name, rounded to the millisecond."""
        measured = {name: value for name, value in asdict(self).items() if name != "notes"}
        return {name: round(value, 3) for name, value in {**measured, "hand_over_s": self.hand_over_s}.items()}


def calibrated(probes: Probes) -> Calibration:
    """Pure. Raises ClusterError where there are too few probes to say anything."""
    if not probes.alone or not probes.burst or len(probes.chain) < 2:
        few = f"{len(probes.alone)} alone, {len(probes.burst)} of the burst and {len(probes.chain)} of the chain"
        raise ClusterError(
            f"too few probe jobs came through to calibrate ({few}); look at the operator and the scheduler"
        )
    gathered_s = probes.coalesce_s
    start_s = max(0.0, median(run.start_s for run in probes.chain))
    submit_s = max(0.0, median(_heard_s([run]) for run in probes.alone) - gathered_s)
    gaps = [to_s(after.asked_ns - before.end_ns) for before, after in pairwise(probes.chain)]
    freed = [to_s(stop.next_asked_ns - stop.asked_ns) - gathered_s for stop in probes.stops]
    bursts = [_of_one_decision(burst, lambda run: run.begin_ns) for burst in (probes.burst, probes.wide)]
    serial_start_s = _slope_s(*([run.begin_ns for run in burst] for burst in bursts))
    together = _of_one_decision(probes.together, lambda stop: stop.end_ns)
    batches = [batch for batch in (probes.burst, probes.wide, probes.chain) if len(batch) > 1]
    later = [(_heard_s(batch) - gathered_s - submit_s) / (len(batch) - 1) for batch in batches]
    return Calibration(
        alone=len(probes.alone),
        burst=len(probes.burst),
        wide=len(probes.wide),
        chain=len(probes.chain),
        stops=len(probes.stops),
        together=len(together),
        coalesce_s=gathered_s,
        arrive_s=_slope_s([run.submitted_ns for run in max(batches, key=len)]),
        submit_s=submit_s,
        serial_submit_s=max(0.0, median(later)),
        start_s=start_s,
        serial_start_s=serial_start_s,
        shared_start_s=_shared_s(bursts, start_s, serial_start_s),
        finish_s=max(0.0, median(gaps) - gathered_s),
        stop_s=max(0.0, median(freed)) if freed else 0.0,
        serial_stop_s=_serial_stop_s(together),
        shared_stop_s=_shared_stop_s(together, probes.stops),
        restart_s=max(0.0, median(s.again.start_s for s in probes.stops) - start_s) if probes.stops else 0.0,
        notes=tuple(_lost(probes, bursts, together)),
    )


def _lost(probes: Probes, bursts: Sequence[Sequence[ProbeRun]], together: Sequence[ProbeStop]) -> Iterator[str]:
    """A sentence for each kind of which fewer than half came through, and were decided together where they were to be."""
    came = {
        "alone": len(probes.alone),
        "chain": len(probes.chain),
        "stops": len(probes.stops),
        "together": len(together),
    }
    came |= dict(zip(("burst", "wide"), map(len, bursts), strict=True))
    for kind, planned in probes.planned.items():
        which, tell = KINDS[kind]
        if 2 * came.get(kind, 0) < planned:
            yield f"calibration: only {came.get(kind, 0)} of {planned} probe jobs {which} can be used; {tell} may be wrong"


def as_submitted(predicted: RunRecord, arrive_s: float) -> RunRecord:
    """The record with jobs of one instant submitted one after the other, as a cluster's operator sees them come.

    The simulator takes them to come together; what it does with them stays.
    """
    seen: Counter[float] = Counter()
    jobs = []
    for job in predicted.jobs:
        late_s = arrive_s * seen[job.submit_s]
        seen[job.submit_s] += 1
        latest_s = job.finish_s if job.start_s is None else job.start_s
        jobs.append(replace(job, submit_s=min(job.submit_s + late_s, max(latest_s, job.submit_s))))
    return replace(predicted, jobs=tuple(jobs))


def _heard_s(batch: Sequence[ProbeRun]) -> float:
    """From the first submission of a batch to the first decision about it."""
    return to_s(min(run.asked_ns for run in batch) - min(run.submitted_ns for run in batch))


def _of_one_decision(probes: Sequence[Probe], at_ns: Callable[[Probe], int]) -> list[Probe]:
    """The most that were started, or stopped, together: in the order of `at_ns`."""
    asked = Counter(probe.asked_ns for probe in probes).most_common(1)
    return sorted((probe for probe in probes if probe.asked_ns == asked[0][0]), key=at_ns)


def _shared_s(bursts: Iterable[Sequence[ProbeRun]], start_s: float, serial_s: float) -> float:
    """By how much the first of a burst begins later than one alone does, for each of the others."""
    late_s = [
        (run.start_s - number * serial_s - start_s) / (len(burst) - 1)
        for burst in bursts
        if len(burst) > 1
        for number, run in enumerate(burst)
    ]
    return max(0.0, median(late_s)) if late_s else 0.0


def _shared_stop_s(together: Sequence[ProbeStop], alone: Sequence[ProbeStop]) -> float:
    """By how much longer than after a stop alone a device takes to be free, for each other stop of the decision.

    The scheduler gathers news: of those that it hears of together only the first to end tells how long that took.
    """
    first = {stop.next_asked_ns: stop for stop in reversed(together)}
    if not together or not together[0].others or not alone:
        return 0.0
    more_s = median(map(_freed_s, first.values())) - median(map(_freed_s, alone))
    return max(0.0, more_s / together[0].others)


def _serial_stop_s(together: Sequence[ProbeStop]) -> float:
    """By how much later each further one hears; those that are lost lie anywhere between and beside those that are known."""
    if len(together) < 2:
        return 0.0
    share = (len(together) + 1) / (together[0].others + 2)
    return _slope_s([stop.end_ns for stop in together]) * share


def _freed_s(stop: ProbeStop) -> float:
    return to_s(stop.next_asked_ns - stop.end_ns)


def _slope_s(*bursts: Sequence[int]) -> float:
    """How much later the next one comes: the median over all pairs (Theil and Sen), so that stragglers don't count.

    Pairs are within a burst; the larger one, which tells more of how slow the next one is, has more of them.
    """
    slopes = [
        to_s(b - a) / (j - i) for times_ns in bursts for (i, a), (j, b) in combinations(enumerate(sorted(times_ns)), 2)
    ]
    return median(slopes) if slopes else 0.0


def warnings(calibration: Calibration, mean_jct_s: float | None) -> list[str]:
    """What is known badly, and a sentence where starts and hand-overs are a large part of what will be observed."""
    cost_s = calibration.hand_over_s
    if not mean_jct_s or cost_s <= SHARE_OF_MEAN_JCT * mean_jct_s:
        return [*calibration.notes]
    late = (
        f"starting a job and handing over its devices takes {cost_s:.2f} s on this cluster, {100 * cost_s / mean_jct_s:.1f}% of "
        "the predicted mean JCT; longer jobs (--stretch) tell more about the policies"
    )
    return [*calibration.notes, late]
