"""What is known of a job beyond Kubernetes: how far it is and how long it took, from the managers' events; a forecast.

The controller shows it in the status and needs none of it: without a source, times come from the API server's objects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prediction:
    """A job completion time in seconds, told by which policy, at what time (RFC 3339)."""

    seconds: float
    by: str
    at: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Times are RFC 3339 (MicroTime), empty: not known; None: not known. `_s` are seconds."""

    steps_done: int = 0
    started_at: str = ""
    finished_at: str = ""
    observed_jct_s: float | None = None
    queueing_delay_s: float | None = None
    service_s: float | None = None
    slowdown: float | None = None
    fairness: float | None = None
    prediction: Prediction | None = None


Outcomes = Callable[[str], Outcome | None]
"""The outcome by the EmuJob's uid; None where nothing is known. Must not block."""


def no_outcomes(_uid: str) -> Outcome | None:
    """No source beside Kubernetes."""
    return None
