"""Means over seeds with confidence intervals, and differences to a baseline with the same seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from emugpu.sweep.evaluation import Outcome
from emugpu.sweep.plan import Condition, Point, Sweep

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over `count` seeds; with CONFIDENCE the true mean is within `half` of it, if the values are about normal.

    `half` is None for a single seed.
    """

    mean: float
    half: float | None
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval | None:
        """By Student's t distribution; None without values."""
        if not values:
            return None
        half = None
        if len(values) > 1:
            half = _student(len(values) - 1) * stdev(values) / sqrt(len(values))
        return cls(fmean(values), half, len(values))

    @property
    def certain(self) -> bool:
        """Whether it is clear on which side of 0 the mean is."""
        return self.half is not None and abs(self.mean) > self.half


def _student(freedom: int) -> float:
    """How many standard errors the interval reaches to each side."""
    from scipy.special import stdtrit  # takes half a second, which `--help` need not wait for

    return float(stdtrit(freedom, 0.5 + CONFIDENCE / 2))


@dataclass(frozen=True, slots=True)
class Line:
    """A policy under a condition. `figures` over its seeds; `differences`: relative to the baseline's figure with the same seed,
    -0.1 for 10% less. `jct_s`: the mean over seeds of each quantile on GRID."""

    condition: Condition
    policy: str
    figures: Mapping[str, Interval]
    differences: Mapping[str, Interval]
    jct_s: tuple[float, ...]

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


def lines(sweep: Sweep, outcomes: Mapping[Point, Outcome]) -> list[Line]:
    """A line for each condition and policy that has outcomes, in the order of the sweep. The first policy is the baseline."""
    found: list[Line] = []
    for condition in sweep.conditions:
        baseline = _of(sweep, outcomes, condition, sweep.policies[0])
        for policy in sweep.policies:
            own = _of(sweep, outcomes, condition, policy)
            if own:
                found.append(_line(condition, policy, own, baseline))
    return found


def _of(sweep: Sweep, outcomes: Mapping[Point, Outcome], condition: Condition, policy: str) -> dict[int, Outcome]:
    points = ((seed, Point(condition.load, seed, condition.estimates, policy)) for seed in sweep.seeds)
    return {seed: outcomes[point] for seed, point in points if point in outcomes and not outcomes[point].error}


def _line(condition: Condition, policy: str, own: Mapping[int, Outcome], baseline: Mapping[int, Outcome]) -> Line:
    names = next(iter(own.values())).figures
    figures, differences = {}, {}
    for name in names:
        values = {seed: value for seed, one in own.items() if (value := one.figures[name]) is not None}
        if (interval := Interval.of(list(values.values()))) is not None:
            figures[name] = interval
        pairs = [
            value / base - 1
            for seed, value in values.items()
            if seed in baseline and (base := baseline[seed].figures[name])
        ]
        if (difference := Interval.of(pairs)) is not None:
            differences[name] = difference
    quantiles = [one.jct_s for one in own.values() if one.jct_s]
    return Line(condition, policy, figures, differences, tuple(fmean(each) for each in zip(*quantiles, strict=True)))
