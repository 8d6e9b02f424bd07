"""A result as the members of an EmuJob's status, and finish-time fairness, which needs the other jobs too."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import isfinite
from typing import Any

from operators.kube.timestamps import rfc3339_micro
from operators.results.events import FAILED
from operators.results.facts_and_result import EVENT_LOG, JobResult
from operators.results.runs_from_events import Run

MOST_RUNS = 20
"""Maximum number of runs in a status, the newest ones: an object of the API server must stay small."""
_DIGITS = 6
Stay = tuple[int, int]
"""From a job's submission to its completion, nanoseconds."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a job so far. `settled`: no better report of its end will arrive; `fairness`: see `fairness`."""

    result: JobResult
    settled: bool = False
    fairness: float | None = None

    @property
    def exact(self) -> bool:
        """Whether its end may be shown: the event log reported it, or no better report will come, as for a failure."""
        result = self.result
        final = result.told_by == EVENT_LOG or result.outcome == FAILED or self.settled
        return result.finished_ns is not None and final


def stay_of(result: JobResult, now_ns: int) -> Stay:
    """From its submission to its end, or until now."""
    return result.facts.submitted_ns, now_ns if result.finished_ns is None else result.finished_ns


def fairness(result: JobResult, stays: Stays, cluster_gpus: int) -> float | None:
    """See `finish_time_fairness`; None until the job has finished, and if its isolated time is unknown.

    `stays`: of all jobs including this one; those of running jobs end later than this one's.
    """
    facts, jct_s, end_ns = result.facts, result.jct_s, result.finished_ns
    if not result.finished or jct_s is None or end_ns is None or not facts.isolated_s or not isfinite(facts.isolated_s):
        return None
    contenders = stays.contention((facts.submitted_ns, end_ns))
    return finish_time_fairness(jct_s, facts.isolated_s, facts.gpus * facts.tasks, cluster_gpus, contenders)


def members_of(outcome: Outcome) -> dict[str, Any]:
    """Members of status; unknown ones are left out. Seconds to the microsecond.

    An end that Kubernetes reported in whole seconds isn't shown while a better report may arrive.
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


# --- fairness -----------------------------------------------------------------------------------------------------------


class Stays:
    """When each job was in the system, by its uid. Queries between two changes are cheap, however many jobs there are."""

    def __init__(self, stays: Mapping[str, Stay] | None = None) -> None:
        self._of = dict(stays or {})
        self._passed: tuple[_Passed, _Passed] | None = None

    def put(self, uid: str, stay: Stay) -> None:
        if self._of.get(uid) != stay:
            self._of[uid], self._passed = stay, None

    def drop(self, uids: Iterable[str]) -> None:
        """Unknown uids are ignored."""
        for uid in uids:
            if self._of.pop(uid, None) is not None:
                self._passed = None

    def contention(self, stay: Stay) -> float:
        """The mean number of jobs in the system during `stay`, which is one of theirs; at least 1.

        Example: stays (0, 10), (0, 10) and (5, 30) during (0, 10): (10 + 10 + 5) / 10 = 2.5.
        """
        begin, end = stay
        if end <= begin:
            return 1.0
        return max(1.0, (self._until(end) - self._until(begin)) / (end - begin))

    def _until(self, at: int) -> int:
        """The sum of the times that all jobs have been in the system until `at`."""
        if self._passed is None:
            self._passed = (
                _Passed(begin for begin, _ in self._of.values()),
                _Passed(end for _, end in self._of.values()),
            )
        begun, ended = self._passed
        return begun.until(at) - ended.until(at)


class _Passed:
    """The sum of the times that have passed since given moments."""

    def __init__(self, moments: Iterable[int]) -> None:
        self._moments = sorted(moments)
        self._sums = [0, *accumulate(self._moments)]

    def until(self, at: int) -> int:
        gone = bisect_left(self._moments, at)
        return gone * at - self._sums[gone]


def finish_time_fairness(jct_s: float, isolated_s: float, gpus: int, cluster_gpus: int, contenders: float) -> float:
    """rho = T_shared / T_independent (Mahajan et al., Themis, NSDI 2020): above 1, sharing cost the job more than its share.

    T_independent is its run time with 1/N of the cluster for itself, N being `contenders`, the mean number of jobs during
    its stay. A job of a fixed number of GPUs can't use a larger share than that number and takes turns on a smaller one,
    so its rate is min(1, share / `gpus`) of the isolated one (Narayanan et al., Gavel, OSDI 2020: isolated allocation).
    """
    share = cluster_gpus / contenders
    rate = min(1.0, share / gpus) if gpus else 1.0
    return jct_s / (isolated_s / rate)
