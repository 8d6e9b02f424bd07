"""How a job's speed follows the CPUs and the host memory that it gets: the data stalls that GPU schedulers forget.

A training step waits for its input: prepared by CPUs, read from the memory that caches the data set. The slower of the two
sets the pace (Mohan et al., OSDI 2022, section 2: data stalls), so a job's speed is the lesser of two curves.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil, inf, isfinite

Knots = tuple[tuple[int, float], ...]
"""A curve: (amount, speed), amounts growing. Linear between knots and from the origin to the first, flat after the last."""


@dataclass(frozen=True, slots=True)
class HostShare:
    """What a job gets of a node beside its devices: CPUs in thousandths, memory in bytes."""

    cpu_milli: int
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Speed of a whole job against its CPUs (thousandths) and its host memory (bytes); 1 is the speed that it states.

    A curve without knots: this resource doesn't matter. Raises ValueError when neither does, and for a curve whose amounts
    don't grow or with a number that isn't positive.
    """

    cpu: Knots
    memory: Knots

    def __post_init__(self) -> None:
        if not self.cpu and not self.memory:
            raise ValueError("a speed that depends on nothing needs no curves")
        for curve in (self.cpu, self.memory):
            grows = all(a[0] < b[0] for a, b in pairwise(curve))
            if not grows or any(amount <= 0 or not (speed > 0 and isfinite(speed)) for amount, speed in curve):
                raise ValueError(f"{curve} is no curve: give (amount, speed) pairs above 0 with growing amounts")

    @classmethod
    def between(cls, least: HostShare, best: HostShare, speedup: float) -> Sensitivity:
        """Speed 1 with `least`, `speedup` with `best` and linear between them (the formula of Synergy's simulator)."""
        return cls(
            _line((least.cpu_milli, 1.0), (best.cpu_milli, speedup)),
            _line((least.memory_bytes, 1.0), (best.memory_bytes, speedup)),
        )

    def speed(self, host: HostShare) -> float:
        """Times as fast as stated, with this share of the node."""
        return min(_at(self.cpu, host.cpu_milli), _at(self.memory, host.memory_bytes))

    @property
    def best(self) -> HostShare:
        """The least share with which the job is as fast as it can be."""
        top = min(max(speed for _, speed in curve) for curve in (self.cpu, self.memory) if curve)
        return HostShare(_least(self.cpu, top), _least(self.memory, top))

    def times(self, gpus: int) -> Sensitivity:
        """The curves of a job on `gpus` devices, where these are per device."""
        return Sensitivity(*(tuple((amount * gpus, speed) for amount, speed in c) for c in (self.cpu, self.memory)))


def _line(least: tuple[int, float], best: tuple[int, float]) -> Knots:
    """Two knots, or none where more of this resource doesn't matter."""
    return (least, best) if best[0] > least[0] else ()


def _at(curve: Knots, amount: int) -> float:
    if not curve:
        return inf
    amount = max(1, amount)
    index = bisect_left(curve, (amount,))
    if index == len(curve):
        return curve[-1][1]
    x1, y1 = curve[index]
    if x1 == amount:
        return y1  # a knot exactly as it was given: speeds of 1 stay 1
    x0, y0 = curve[index - 1] if index else (0, 0.0)
    return y0 + (y1 - y0) * float(Fraction(amount - x0, x1 - x0))


def _least(curve: Knots, speed: float) -> int:
    """The least amount at which the curve reaches `speed`, rounded up; 0 where this resource doesn't matter."""
    x0, y0 = 0, 0.0
    for x1, y1 in curve:
        if y1 >= speed:
            share = (Fraction(speed) - Fraction(y0)) / (Fraction(y1) - Fraction(y0))
            return x0 + ceil((x1 - x0) * share)
        x0, y0 = x1, y1
    return x0
