"""Suggestions for misspelt names. By edit distance, so that the Go program suggests the same names."""

from __future__ import annotations

from collections.abc import Iterable

_MOST = 3


def nearest(name: str, known: Iterable[str]) -> str:
    """`did you mean A or B?`, or all names if none is near: at most a third of the letters, or two, may be wrong."""
    names = sorted(known)
    limit = max(2, len(name) // 3)
    ranked = sorted((distance, other) for other in names if (distance := edit_distance(name, other)) <= limit)
    if ranked:
        return f"did you mean {' or '.join(other for _, other in ranked[:_MOST])}?"
    return f"known: {', '.join(names)}"


def edit_distance(one: str, other: str) -> int:
    """Number of letters to insert, delete or replace (Levenshtein 1966)."""
    before = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        now = [row]
        for column, wanted in enumerate(other, 1):
            now.append(min(before[column] + 1, now[-1] + 1, before[column - 1] + (letter != wanted)))
        before = now
    return before[-1]
