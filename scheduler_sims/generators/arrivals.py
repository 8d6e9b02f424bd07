"""When generated jobs come: at a mean rate, with chance that is passed in. The same seed gives the same pattern at every rate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate, repeat
from math import pi, sin
from random import Random

DAY_S = 86_400.0
_SWING = 0.8
"""The rate of a day goes from 1 - _SWING to 1 + _SWING times its mean: nine times as many jobs come at noon as at midnight."""

Arrivals = Callable[[Random, float], Iterator[float]]
"""Endless submission times in seconds from 0 on, for a mean rate in jobs per second."""


def poisson(chance: Random, rate: float) -> Iterator[float]:
    """Independent arrivals: exponentially distributed times between them."""
    return accumulate(chance.expovariate(1.0) / rate for _ in repeat(None))


def diurnal(chance: Random, rate: float) -> Iterator[float]:
    """Independent arrivals whose rate follows the day, least at midnight (0 s), most at noon.

    A Poisson process of unit rate, whose times are mapped through the inverse of the expected number of arrivals.
    """
    return (_when(number / rate) for number in poisson(chance, 1.0))


def _when(even_s: float) -> float:
    """The time at which as many jobs are expected as after `even_s` at the mean rate. Bisection: the expectation grows."""
    days = even_s // DAY_S
    wanted, low, high = even_s / DAY_S - days, 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if _expected(middle) < wanted:
            low = middle
        else:
            high = middle
    return (days + low) * DAY_S


def _expected(part: float) -> float:
    """Arrivals until this part of a day, as a part of the day's: the integral of 1 - _SWING * cos(2 pi t)."""
    return part - _SWING * sin(2 * pi * part) / (2 * pi)


def at_once(chance: Random, rate: float) -> Iterator[float]:
    """All jobs are there at the beginning."""
    return repeat(0.0)


ARRIVALS: Mapping[str, Arrivals] = {"poisson": poisson, "diurnal": diurnal, "at-once": at_once}
