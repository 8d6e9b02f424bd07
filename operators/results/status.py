"""A result as the members of an EmuJob's status, and the figure that needs the other jobs too."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

from operators.clock import rfc3339_micro
from operators.results.figures import Stay, contention, finish_time_fairness
from operators.results.predicted import Prediction
from operators.results.timeline import JobResult

_DIGITS = 6


def stay_of(result: JobResult, now_ns: int) -> Stay:
    """From its submission to its end, or until now."""
    return result.facts.submitted_ns, now_ns if result.finished_ns is None else result.finished_ns


def fairness(result: JobResult, others: Iterable[JobResult], cluster_gpus: int, now_ns: int) -> float | None:
    """See figures.finish_time_fairness; None until the job has finished, and where its isolated time isn't known.

    `others` may hold the job itself. Still running ones count until now.
    """
    facts, jct_s = result.facts, result.jct_s
    if not result.finished or jct_s is None or not facts.isolated_s or not isfinite(facts.isolated_s):
        return None
    stays = [stay_of(other, now_ns) for other in others if other.facts.uid != facts.uid]
    contenders = contention(stay_of(result, now_ns), stays)
    return finish_time_fairness(jct_s, facts.isolated_s, facts.gpus * facts.tasks, cluster_gpus, contenders)


def status_of(result: JobResult, prediction: Prediction | None, rho: float | None) -> dict[str, object]:
    """Members of status; those that aren't known yet are left out. Seconds to the microsecond."""
    members: dict[str, object | None] = {
        "submittedAt": rfc3339_micro(result.facts.submitted_ns),
        "startedAt": _time(result.first_started_ns),
        "finishedAt": _time(result.finished_ns),
        "stepsDone": result.steps_done,
        "preemptions": result.preemptions,
        "observedJCTSeconds": _rounded(result.jct_s),
        "queueingDelaySeconds": _rounded(result.queueing_delay_s),
        "serviceSeconds": _rounded(result.service_s),
        "slowdown": _rounded(result.slowdown),
        "fairness": _rounded(rho),
        "predictedJCTSeconds": None if prediction is None else _prediction(prediction),
    }
    return {name: value for name, value in members.items() if value is not None}


def _prediction(prediction: Prediction) -> dict[str, object]:
    return {"value": _rounded(prediction.seconds), "by": prediction.by, "at": rfc3339_micro(prediction.at_ns)}


def _time(wall_ns: int | None) -> str | None:
    return None if wall_ns is None else rfc3339_micro(wall_ns)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)
