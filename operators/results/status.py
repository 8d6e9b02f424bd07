"""A result as the members of an EmuJob's status, and the figure that needs the other jobs too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from operators.kube.timestamps import rfc3339_micro
from operators.results.events import FAILED
from operators.results.figures import Stay, Stays, finish_time_fairness
from operators.results.job import EVENT_LOG, JobResult
from operators.results.runs import Run

MOST_RUNS = 20
"""The newest ones, which a status shows: an object of the API server must stay small."""
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job until now. `settled`: its end won't be told better any more; `fairness`: see `fairness`."""

    result: JobResult
    settled: bool = False
    fairness: float | None = None

    @property
    def exact(self) -> bool:
        """The end that it tells is worth showing: the event log's, or the only one that there will be, as that of a failure."""
        result = self.result
        final = result.told_by == EVENT_LOG or result.outcome == FAILED or self.settled
        return result.finished_ns is not None and final


def stay_of(result: JobResult, now_ns: int) -> Stay:
    """From its submission to its end, or until now."""
    return result.facts.submitted_ns, now_ns if result.finished_ns is None else result.finished_ns


def fairness(result: JobResult, stays: Stays, cluster_gpus: int) -> float | None:
    """See figures.finish_time_fairness; None until the job has finished, and where its isolated time isn't known.

    `stays`: of all jobs, this one too; of those that still run they end later than this one's.
    """
    facts, jct_s, end_ns = result.facts, result.jct_s, result.finished_ns
    if not result.finished or jct_s is None or end_ns is None or not facts.isolated_s or not isfinite(facts.isolated_s):
        return None
    contenders = stays.contention((facts.submitted_ns, end_ns))
    return finish_time_fairness(jct_s, facts.isolated_s, facts.gpus * facts.tasks, cluster_gpus, contenders)


def members_of(outcome: Outcome) -> dict[str, Any]:
    """Members of status; those that aren't known yet are left out. Seconds to the microsecond.

    An end that Kubernetes told in whole seconds isn't shown while a better one may be on its way.
    """
    result = outcome.result
    members: dict[str, Any] = {
        "startedAt": _time(result.first_started_ns),
        "stepsDone": result.steps_done,
        "stepsDoneAt": _time(result.heard_ns),
        "queueingDelaySeconds": _rounded(result.queueing_delay_s),
        "serviceSeconds": _rounded(result.service_s),
        "runs": [_run(run) for run in result.runs[-MOST_RUNS:]],
    }
    if outcome.exact and (result.finished or result.outcome == FAILED):
        members["finishedAt"] = _time(result.finished_ns)
    if outcome.exact and result.finished:
        members |= {
            "observedJCTSeconds": _rounded(result.jct_s),
            "slowdown": _rounded(result.slowdown),
            "fairness": _rounded(outcome.fairness),
        }
    return {name: value for name, value in members.items() if value is not None}


def _run(run: Run) -> Mapping[str, Any]:
    """`to` and `ended` are absent while it goes on."""
    over = {} if run.end_ns is None else {"to": rfc3339_micro(run.end_ns), "ended": run.ended}
    return {
        "node": run.node,
        "devices": list(run.devices),
        "from": rfc3339_micro(run.begin_ns),
        "fromStep": run.from_step,
        "toStep": run.to_step,
        **over,
    }


def _time(wall_ns: int | None) -> str | None:
    return None if wall_ns is None else rfc3339_micro(wall_ns)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)
