"""Predictions of a job's completion time, made when it was submitted."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from emulator_runtime.domain.json_document import parse
from operators.kube.timestamps import ns_of, rfc3339_micro

_FIELDS = ("seconds", "by", "at")


@dataclass(frozen=True, slots=True)
class Prediction:
    """The completion time of one job, predicted at its submission (`at_ns`, wall clock since 1970) under the policy `by`.

    It knows the jobs in the cluster at that time and none that come later, so it is often too short. It never enters an
    experiment's error.
    """

    seconds: float
    by: str
    at_ns: int

    @classmethod
    def from_json(cls, text: str, place: str) -> Prediction:
        """{"seconds": 12.3, "by": "allox", "at": "2026-01-02T03:04:05.000006Z"}. Raises InputError naming `place` and the
        field that is wrong."""
        given = parse(text, place).members(_FIELDS)
        seconds, at_ns = given["seconds"].value, ns_of(given["at"].text())
        if (
            isinstance(seconds, bool)
            or not isinstance(seconds, (int, float))
            or not seconds >= 0
            or not isfinite(seconds)
        ):
            raise given["seconds"].error(f"must be a number of seconds from 0 on, not {seconds!r}")
        if at_ns is None:
            raise given["at"].error("must be a time with its zone, such as 2026-01-02T03:04:05.000006Z")
        return cls(float(seconds), given["by"].text(least=1, most=63), at_ns)

    def to_status(self) -> dict[str, object]:
        """The status member; seconds to the microsecond."""
        return {"value": round(self.seconds, 6), "by": self.by, "at": rfc3339_micro(self.at_ns)}


def error_ratio(predicted_s: float, observed_s: float) -> float:
    """|predicted - observed| / observed; 0 is perfect. `observed_s` must be above 0."""
    return abs(predicted_s - observed_s) / observed_s
