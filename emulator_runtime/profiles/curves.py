"""Curves through measured points: straight lines between them, and a deliberate, conservative rule outside of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Curve:
    """Positive values measured at strictly increasing batch sizes; the unit is the owner's."""

    batches: tuple[int, ...]
    values: tuple[float, ...]

    def covers(self, batch: int) -> bool:
        """Whether `batch` lies within the measured range."""
        return self.batches[0] <= batch <= self.batches[-1]

    def at(self, batch: int) -> float:
        """The value at `batch`: exact at a measured point, linear between two of them.

        Below the first point it is the first value: small batches are bound by launches and parameters, not by samples.
        Above the last one the line goes on with the mean slope of the upper half of the measured range, never falling:
        two neighbouring points are too noisy to continue from (GPEmu's regressions drop at 56 of their 98 boundaries).
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
        """The continuation of the line; through the origin where there is one point only."""
        last, value = self.batches[-1], self.values[-1]
        if len(self.batches) == 1:
            return value * batch / last
        half = max(bisect_right(self.batches, last / 2) - 1, 0)
        slope = (value - self.values[half]) / (last - self.batches[half])
        return value + max(slope, 0.0) * (batch - last)


@dataclass(frozen=True, slots=True)
class StepCurves:
    """Seconds of one step's forward and backward pass on one GPU type, measured at the same batch sizes."""

    forward_s: Curve
    backward_s: Curve


@dataclass(frozen=True, slots=True)
class MemoryCurves:
    """Peak and persistent device memory of a model in bytes, measured at the same batch sizes, whatever the GPU type."""

    peak_bytes: Curve
    persistent_bytes: Curve


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """What is known of one model: bytes of one input sample, memory, and step times by canonical GPU type."""

    sample_bytes: int
    memory: MemoryCurves
    steps: Mapping[str, StepCurves]
