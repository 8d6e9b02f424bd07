"""What generated jobs are like: GPUs and durations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

Mix = Callable[[Random], tuple[int, float]]
"""The GPUs and the duration in seconds of one job."""

_SIZES, _PHILLY_SHARES = (1, 2, 4, 8), (0.70, 0.10, 0.15, 0.05)
_HOUR_S = 3600.0


def philly(chance: Random) -> tuple[int, float]:
    """GPUs and durations like those of Microsoft's Philly cluster, as Gavel and Synergy generate them.

    70, 10, 15 and 5% of jobs have 1, 2, 4 and 8 GPUs. Minutes are 10^U(1.5, 3) for 80% of jobs, 10^U(3, 4) for the others
    (stanford-futuredata/gavel, scheduler/utils; msr-fiddle/synergy, simulator/helpers/utils).
    """
    (gpus,) = chance.choices(_SIZES, _PHILLY_SHARES)
    exponent = chance.uniform(1.5, 3) if chance.random() < 0.8 else chance.uniform(3, 4)
    return gpus, 60 * 10**exponent


def exponential(chance: Random) -> tuple[int, float]:
    """One GPU, and an exponential duration of an hour in the mean: with Poisson arrivals, the queue M/M/n with known results."""
    return 1, max(1.0, chance.expovariate(1 / _HOUR_S))


def uniform(chance: Random) -> tuple[int, float]:
    """1, 2, 4 or 8 GPUs alike, and 10 minutes to 2 hours, evenly."""
    return chance.choice(_SIZES), chance.uniform(600, 2 * _HOUR_S)


MIXES: Mapping[str, Mix] = {"philly": philly, "exponential": exponential, "uniform": uniform}
