"""The result of a calibration: each measured cost in seconds, and how it enters the prediction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from emulator_runtime.domain.errors import ClusterError
from operators.experiments.calibration.estimates import DERIVED, most_at_once
from operators.experiments.calibration.observations import Observations, ProbeRun, ProbeStop
from operators.experiments.calibration.probes import PROBES, Probe
from scheduler_sims.interface.costs import COST_NAMES, ClusterCosts
from scheduler_sims.record import RunRecord

SHARE_OF_MEAN_JCT = 0.05
"""Costs above this share of the mean JCT are a warning: then much of the result is the cluster and not the policy."""
_NAMES = {"restart_s": "restore_s"}
"""Measured costs that the simulator's ClusterCosts has under another name."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Measured costs, by name: seconds, and numbers of slots (estimates.py says what each one is).

    `coalesce_s`: for how long the scheduler gathered events; it is in none of the costs. `usable`: the number of usable
    observations of each probe. `notes`: sentences about costs that may be wrong, because probes were lost.
    """

    seconds: Mapping[str, float]
    coalesce_s: float = 0.0
    usable: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def hand_over_s(self) -> float:
        """From the end of a job's last step until the next job's first step begins on the same device."""
        return self.seconds["finish_s"] + self.coalesce_s + self.seconds["start_s"]

    def costs(self, coalesce_s: float) -> ClusterCosts:
        """What the simulator charges, for a scheduler that gathers events for `coalesce_s`."""
        named = {_NAMES.get(name, name): value for name, value in self.seconds.items()}
        return ClusterCosts(coalesce_s=coalesce_s, **{name: named[name] for name in COST_NAMES if name in named})

    def figures(self) -> dict[str, float]:
        """By name, rounded to the millisecond."""
        measured = {**self.usable, "coalesce_s": self.coalesce_s, **self.seconds, "hand_over_s": self.hand_over_s}
        return {name: round(value, 3) for name, value in measured.items()}

    def warnings(self, mean_jct_s: float | None) -> list[str]:
        """The notes, and a sentence where starts and hand-overs are a large part of what will be observed."""
        cost_s = self.hand_over_s
        if not mean_jct_s or cost_s <= SHARE_OF_MEAN_JCT * mean_jct_s:
            return [*self.notes]
        large = (
            f"starting a job and handing over its devices takes {cost_s:.2f} s on this cluster, "
            f"{100 * cost_s / mean_jct_s:.1f}% of the predicted mean JCT; longer jobs (--stretch) show more of the policies"
        )
        return [*self.notes, large]


def calibrated(seen: Observations, probes: Sequence[Probe] = PROBES) -> Calibration:
    """Pure. Raises ClusterError where too few probe jobs ended to compute anything."""
    alone, burst, chain = (len(seen.runs_of(name)) for name in ("alone", "burst", "chain"))
    if not alone or not burst or chain < 2:
        raise ClusterError(
            f"too few probe jobs ended to calibrate ({alone} alone, {burst} of the burst and {chain} of the chain); "
            "look at the logs of the scheduler and of the operator"
        )
    estimates = {name: estimate for probe in probes for name, estimate in probe.costs.items()}
    costs: dict[str, float] = {}
    for name in sorted(estimates, key=lambda name: name in DERIVED):
        costs[name] = estimates[name](seen, costs)
    usable = {probe.name: _usable(seen, probe) for probe in probes if probe.costs}
    return Calibration({name: costs[name] for name in estimates}, seen.coalesce_s, usable, tuple(_lost(seen, probes)))


def _usable(seen: Observations, probe: Probe) -> int:
    observed: Sequence[ProbeRun] | Sequence[ProbeStop] = (
        seen.stops_of(probe.name) if probe.stops else seen.runs_of(probe.name)
    )
    if probe.complete and len(observed) < seen.planned.get(probe.name, 0):
        return 0
    return most_at_once(observed) if probe.one_decision else len(observed)


def _lost(seen: Observations, probes: Sequence[Probe]) -> Iterator[str]:
    """A sentence for each probe of which fewer than half of the planned observations can be used."""
    for probe in probes:
        planned, usable = seen.planned.get(probe.name, 0), _usable(seen, probe)
        if probe.costs and 2 * usable < planned:
            lost = f"only {usable} of {planned} probe jobs {probe.description} can be used"
            yield f"calibration: {lost}; {' and '.join(probe.costs)} may be wrong"


def as_submitted(predicted: RunRecord, arrive_s: float) -> RunRecord:
    """The record with the jobs of one instant submitted one after the other, as the operator sees them on a cluster.

    The simulator submits them together. What it does with them stays as it is; only submission times move.
    """
    before: Counter[float] = Counter()
    jobs = []
    for job in predicted.jobs:
        late_s = arrive_s * before[job.submit_s]
        before[job.submit_s] += 1
        latest_s = job.finish_s if job.start_s is None else job.start_s
        jobs.append(replace(job, submit_s=min(job.submit_s + late_s, max(latest_s, job.submit_s))))
    return replace(predicted, jobs=tuple(jobs))
