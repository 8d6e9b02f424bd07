"""What starting, stopping and handing over cost on a cluster, from what probe jobs showed; nothing of an experiment is looked at.

The scheduler is in all figures: from the moment at which it saw the cluster for a decision until a first step begins, and from
the end of a last step until such a moment. So a cost contains the patch, the Job controller, the kubelet, the container's start
and the way back of the news. Medians, because one slow pull of an image tells nothing about the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, pairwise
from statistics import median

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.domain.units import to_s
from scheduler_sims.interface.costs import ClusterCosts

SHARE_OF_MEAN_JCT = 0.05
"""Costs above this share of the mean JCT are a warning: then the cluster's own doing is a large part of the result."""
_LEAST_GATHER_S = 0.3
_ROOM = 1.3


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

    `again`: the run in which the stopped job went on later.
    """

    asked_ns: int
    end_ns: int
    next_asked_ns: int
    again: ProbeRun


@dataclass(frozen=True, slots=True)
class Probes:
    """`burst`: started at once; `chain`: one after the other on one device, in order; `stops`: one after the other.

    `coalesce_s`: with which the scheduler gathered events meanwhile.
    """

    burst: Sequence[ProbeRun]
    chain: Sequence[ProbeRun]
    stops: Sequence[ProbeStop] = ()
    coalesce_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured, seconds; `costs` are the same in the simulator's words.

    `arrive_s`: from one submission of many at once to the next. `hear_s`: from a submission until the scheduler decides, beyond
    `coalesce_s`. `start_s`: from there to the first step. `serial_start_s`: more for each further start of a burst. `restart_s`:
    more for a job that goes on. `finish_s`: from the end of a last step until the scheduler decides, beyond `coalesce_s` and
    `hear_s`. `stop_s`: from the decision to stop a job until its devices are free.
    """

    burst: int
    chain: int
    stops: int
    coalesce_s: float
    arrive_s: float
    hear_s: float
    start_s: float
    serial_start_s: float
    finish_s: float
    stop_s: float
    restart_s: float

    @property
    def hand_over_s(self) -> float:
        """From the end of a job's last step until the next job's first one begins on the same device."""
        return self.finish_s + self.coalesce_s + self.hear_s + self.start_s

    def gather_s(self, at_once: int) -> float:
        """How long a scheduler has to gather events to see so many jobs of one instant together, with some room."""
        return round(_LEAST_GATHER_S + _ROOM * self.arrive_s * (at_once - 1), 1)

    def costs(self, coalesce_s: float) -> ClusterCosts:
        """For a scheduler that gathers events for `coalesce_s`."""
        return ClusterCosts(
            coalesce_s=coalesce_s,
            decide_s=self.hear_s,
            start_s=self.start_s,
            restore_s=self.restart_s,
            serial_start_s=self.serial_start_s,
            stop_s=self.stop_s,
            finish_s=self.finish_s,
        )

    def figures(self) -> dict[str, float]:
        """By name, rounded to the millisecond."""
        return {name: round(value, 3) for name, value in {**asdict(self), "hand_over_s": self.hand_over_s}.items()}


def calibrated(probes: Probes) -> Calibration:
    """Pure. Raises ClusterError where there are too few probes to say anything."""
    if not probes.burst or len(probes.chain) < 2:
        few = f"{len(probes.burst)} of the burst and {len(probes.chain)} of the chain"
        raise ClusterError(
            f"too few probe jobs came through to calibrate ({few}); look at the operator and the scheduler"
        )
    hear_s = max(0.0, median(_heard_s(probes)) - probes.coalesce_s)
    start_s = median(run.start_s for run in probes.chain)
    gaps = [to_s(after.asked_ns - before.end_ns) for before, after in pairwise(probes.chain)]
    gathered_s = probes.coalesce_s + hear_s
    freed = [to_s(stop.next_asked_ns - stop.asked_ns) - gathered_s for stop in probes.stops]
    return Calibration(
        burst=len(probes.burst),
        chain=len(probes.chain),
        stops=len(probes.stops),
        coalesce_s=probes.coalesce_s,
        arrive_s=_slope_s([run.submitted_ns for run in probes.burst]),
        hear_s=hear_s,
        start_s=max(0.0, start_s),
        serial_start_s=_slope_s(_of_one_decision(probes.burst)),
        finish_s=max(0.0, median(gaps) - gathered_s),
        stop_s=max(0.0, median(freed)) if freed else 0.0,
        restart_s=max(0.0, median(s.again.start_s for s in probes.stops) - start_s) if probes.stops else 0.0,
    )


def _heard_s(probes: Probes) -> list[float]:
    """From a submission to the decision that answers it; of the chain only the first job is started when it comes."""
    return [to_s(run.asked_ns - run.submitted_ns) for run in (*probes.burst, probes.chain[0])]


def _of_one_decision(burst: Sequence[ProbeRun]) -> list[int]:
    """When those began that were started together."""
    most = Counter(run.asked_ns for run in burst).most_common(1)[0][0]
    return [run.begin_ns for run in burst if run.asked_ns == most]


def _slope_s(times_ns: Sequence[int]) -> float:
    """How much later the next one comes: the median over all pairs (Theil and Sen), so that stragglers don't count."""
    slopes = [to_s(b - a) / (j - i) for (i, a), (j, b) in combinations(enumerate(sorted(times_ns)), 2)]
    return median(slopes) if slopes else 0.0


def warning(calibration: Calibration, mean_jct_s: float | None) -> str | None:
    """A sentence where starts and hand-overs are a large part of what will be observed."""
    cost_s = calibration.hand_over_s
    if not mean_jct_s or cost_s <= SHARE_OF_MEAN_JCT * mean_jct_s:
        return None
    return (
        f"starting a job and handing over its devices takes {cost_s:.2f} s on this cluster, {100 * cost_s / mean_jct_s:.1f}% of "
        "the predicted mean JCT; longer jobs (--stretch) tell more about the policies"
    )
