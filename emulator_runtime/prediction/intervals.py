"""Sets of times as sorted lists of disjoint intervals [start, end) in nanoseconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """What is in any of these intervals, which may be in any order; empty ones don't count."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def without(intervals: Sequence[Interval], others: Sequence[Interval]) -> list[Interval]:
    """What is in one set and not in the other."""
    found: list[Interval] = []
    first = 0
    for start, end in intervals:
        while first < len(others) and others[first][1] <= start:
            first += 1
        at = first
        while at < len(others) and others[at][0] < end:
            if others[at][0] > start:
                found.append((start, others[at][0]))
            start = max(start, others[at][1])
            at += 1
        if start < end:
            found.append((start, end))
    return found


def within(intervals: Iterable[Interval], start: int, end: int) -> list[Interval]:
    """What lies between two times."""
    return [(max(a, start), min(b, end)) for a, b in intervals if b > start and a < end]


def total(intervals: Iterable[Interval]) -> int:
    """The length of disjoint intervals."""
    return sum(end - start for start, end in intervals)
