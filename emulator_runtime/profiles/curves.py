"""Curves through measured points: linear between the points, with a conservative extrapolation outside."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Curve:
    """Positive values measured at strictly increasing batch sizes; the owner of the curve defines the unit."""

    batches: tuple[int, ...]
    values: tuple[float, ...]

    def covers(self, batch: int) -> bool:
        """Whether `batch` lies within the measured range."""
        return self.batches[0] <= batch <= self.batches[-1]

    def at(self, batch: int) -> float:
        """The value at `batch`: exact at a measured point, linear between two points.

        Below the first point it is the first value, since kernel launches and parameters dominate small batches. Above the
        last point it continues with the mean slope of the upper half of the measured range, and never falls: the slope
        between the last two points is too noisy (GPEmu's regressions drop at 56 of their 98 boundaries).
        """
        if batch <= self.batches[0]:
            return self.values[0]
        if batch > self.batches[-1]:
            return self._beyond(batch)
        right = bisect_left(self.batches, batch)
        if self.batches[right] == batch:
            return self.values[right]
        left = right - 1
        slope = (self.values[right] - self.values[left]) / (self.batches[right] - self.batches[left])
        return self.values[left] + slope * (batch - self.batches[left])

    def _beyond(self, batch: int) -> float:
        """The extrapolated value; with a single point, on the line through that point and the origin."""
        last, value = self.batches[-1], self.values[-1]
        if len(self.batches) == 1:
            return value * batch / last
        half = max(bisect_right(self.batches, last / 2) - 1, 0)
        slope = (value - self.values[half]) / (last - self.batches[half])
        return value + max(slope, 0.0) * (batch - last)


@dataclass(frozen=True, slots=True)
class StepCurves:
    """Forward and backward pass of one step on one GPU type, in seconds, measured at the same batch sizes. `start_s`: what a
    run of the program takes beside its steps; None: not known."""

    forward_s: Curve
    backward_s: Curve
    start_s: Curve | None = None


@dataclass(frozen=True, slots=True)
class MemoryCurves:
    """Peak and persistent device memory of a model in bytes at the same batch sizes; the same for all GPU types."""

    peak_bytes: Curve
    persistent_bytes: Curve


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """The profile of one model: bytes of an input sample, memory, and step times by canonical GPU type."""

    sample_bytes: int
    memory: MemoryCurves
    steps: Mapping[str, StepCurves]
