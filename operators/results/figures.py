"""The figures of a job's completion that papers compare: slowdown and finish-time fairness, each with its source."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import accumulate

Stay = tuple[int, int]
"""From a job's submission to its completion, nanoseconds."""


def covered_ns(spans: Iterable[Stay]) -> int:
    """Length of the union of these spans."""
    total, reached = 0, None
    for begin, end in sorted(spans):
        if reached is None or begin > reached:
            total, reached = total + max(0, end - begin), max(begin, end)
        elif end > reached:
            total, reached = total + end - reached, end
    return total


def slowdown(jct_s: float, isolated_s: float) -> float:
    """JCT over the job's run time alone on its devices (Feitelson's slowdown): 1 is the best that can be."""
    return jct_s / isolated_s


class Stays:
    """When each job was in the system, by its uid. Questions between two changes cost little, however many jobs there are."""

    def __init__(self, stays: Mapping[str, Stay] | None = None) -> None:
        self._of = dict(stays or {})
        self._passed: tuple[_Passed, _Passed] | None = None

    def put(self, uid: str, stay: Stay) -> None:
        if self._of.get(uid) != stay:
            self._of[uid], self._passed = stay, None

    def drop(self, uids: Iterable[str]) -> None:
        """Those that there are."""
        for uid in uids:
            if self._of.pop(uid, None) is not None:
                self._passed = None

    def contention(self, stay: Stay) -> float:
        """How many of them were in the system on average during `stay`, which is one of theirs; at least 1."""
        begin, end = stay
        if end <= begin:
            return 1.0
        return max(1.0, (self._until(end) - self._until(begin)) / (end - begin))

    def _until(self, at: int) -> int:
        """How long they have been in the system together."""
        if self._passed is None:
            self._passed = (
                _Passed(begin for begin, _ in self._of.values()),
                _Passed(end for _, end in self._of.values()),
            )
        begun, ended = self._passed
        return begun.until(at) - ended.until(at)


class _Passed:
    """How much time has passed since some moments, together."""

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
