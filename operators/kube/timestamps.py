"""Wall-clock times in the formats of Kubernetes objects; callers pass the clock's time in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(wall_ns: int) -> str:
    """Whole seconds, as metav1.Time: 2026-01-02T03:04:05Z."""
    return (_EPOCH + timedelta(seconds=wall_ns // 1_000_000_000)).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(wall_ns: int) -> str:
    """Microseconds, as metav1.MicroTime: 2026-01-02T03:04:05.000006Z."""
    return (_EPOCH + timedelta(microseconds=wall_ns // 1000)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def ns_of(text: str) -> int | None:
    """Nanoseconds since 1970 of a metav1.Time or MicroTime; None for what is neither."""
    try:
        return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1) * 1000
    except (ValueError, TypeError, OverflowError):  # no time, or one without its zone
        return None


def seconds_of(text: str) -> float | None:
    """Seconds since 1970 of a metav1.Time or MicroTime; None for what is neither."""
    at_ns = ns_of(text)
    return None if at_ns is None else at_ns / 1e9
