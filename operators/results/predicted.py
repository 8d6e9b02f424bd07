"""Predictions as facts. The two kinds are two types, so that one can't get into the error of the other by mistake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prediction:
    """The completion time of one job, made at its submission (`at_ns`, wall clock since 1970) under the policy `by`.

    It knows what was in the cluster then and nothing of what comes later, so it is often too short and never enters an
    experiment's error.
    """

    seconds: float
    by: str
    at_ns: int


@dataclass(frozen=True, slots=True)
class ExperimentPrediction:
    """The completion time of each job (by its name) of a whole experiment under the policy `by`, made beforehand."""

    experiment: str
    by: str
    at_ns: int
    seconds: Mapping[str, float]

    def errors(self, observed_s: Mapping[str, float]) -> dict[str, float]:
        """Per job that was predicted and observed: see `error_ratio`."""
        both = self.seconds.keys() & observed_s.keys()
        return {job: error_ratio(self.seconds[job], observed_s[job]) for job in sorted(both)}


def error_ratio(predicted_s: float, observed_s: float) -> float:
    """|predicted - observed| / observed; 0 is perfect. `observed_s` must be above 0."""
    return abs(predicted_s - observed_s) / observed_s
