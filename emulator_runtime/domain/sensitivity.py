"""How the speed of a job depends on the CPUs and the host memory that it gets.

A training step waits for its input data, which CPUs prepare and host memory caches. The slower of the two limits the job
(Mohan et al., OSDI 2022, section 2: data stalls), so the speed of a job is the minimum of two curves. Example: with CPUs
for speed 1.5 and memory for speed 1.2, the job runs at speed 1.2.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil, inf, isfinite

Knots = tuple[tuple[int, float], ...]
"""A curve as points (amount, speed) with growing amounts. It is linear from (0, 0) to the first point and between the points,
and constant after the last one."""


@dataclass(frozen=True, slots=True)
class HostShare:
    """The resources of a node, other than GPUs, that a job gets: CPUs in thousandths, memory in bytes."""

    cpu_milli: int
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The speed of a whole job as a function of its CPUs (thousandths) and its host memory (bytes). 1 is the stated speed.

    A curve without points means that the resource has no effect on the speed. Raises ValueError if both curves have no
    points, if the amounts of a curve don't grow, or if a number isn't positive.
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
        """Speed 1 with `least`, `speedup` with `best`, linear in between (the formula of Synergy's simulator)."""
        return cls(
            _line((least.cpu_milli, 1.0), (best.cpu_milli, speedup)),
            _line((least.memory_bytes, 1.0), (best.memory_bytes, speedup)),
        )

    def speed(self, host: HostShare) -> float:
        """The speed relative to the stated one, with these CPUs and this memory."""
        return min(_at(self.cpu, host.cpu_milli), _at(self.memory, host.memory_bytes))

    @property
    def best(self) -> HostShare:
        """The smallest amounts with which the job reaches its highest speed."""
        top = min(max(speed for _, speed in curve) for curve in (self.cpu, self.memory) if curve)
        return HostShare(_least(self.cpu, top), _least(self.memory, top))

    def times(self, gpus: int) -> Sensitivity:
        """The curves of a job on `gpus` devices, if these curves are per device."""
        return Sensitivity(*(tuple((amount * gpus, speed) for amount, speed in c) for c in (self.cpu, self.memory)))


def _line(least: tuple[int, float], best: tuple[int, float]) -> Knots:
    """A curve of two points, or of none if more of this resource has no effect."""
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
        return y1  # no interpolation: rounding could turn a given speed of 1 into 0.999...
    x0, y0 = curve[index - 1] if index else (0, 0.0)
    return y0 + (y1 - y0) * float(Fraction(amount - x0, x1 - x0))


def _least(curve: Knots, speed: float) -> int:
    """The smallest amount at which the curve reaches `speed`, rounded up; 0 if this resource has no effect."""
    x0, y0 = 0, 0.0
    for x1, y1 in curve:
        if y1 >= speed:
            share = (Fraction(speed) - Fraction(y0)) / (Fraction(y1) - Fraction(y0))
            return x0 + ceil((x1 - x0) * share)
        x0, y0 = x1, y1
    return x0
