"""The figures of a job's completion that papers compare: slowdown and finish-time fairness, each with its source."""

from __future__ import annotations

from collections.abc import Iterable

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


def contention(stay: Stay, others: Iterable[Stay]) -> float:
    """How many jobs were in the system on average while this one was, itself included; at least 1."""
    begin, end = stay
    if end <= begin:
        return 1.0
    shared = sum(max(0, min(end, other_end) - max(begin, other_begin)) for other_begin, other_end in others)
    return 1.0 + shared / (end - begin)


def finish_time_fairness(jct_s: float, isolated_s: float, gpus: int, cluster_gpus: int, contenders: float) -> float:
    """rho = T_shared / T_independent (Mahajan et al., Themis, NSDI 2020): above 1, sharing cost the job more than its share.

    T_independent is its run time with 1/N of the cluster for itself, N being `contenders`, the mean number of jobs during
    its stay. A job of a fixed number of GPUs can't use a larger share than that number and takes turns on a smaller one,
    so its rate is min(1, share / `gpus`) of the isolated one (Narayanan et al., Gavel, OSDI 2020: isolated allocation).
    """
    share = cluster_gpus / contenders
    rate = min(1.0, share / gpus) if gpus else 1.0
    return jct_s / (isolated_s / rate)
