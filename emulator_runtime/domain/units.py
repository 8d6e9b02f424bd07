"""Units of all names: `_s` is seconds (float), `_ns` is nanoseconds (int), `_bytes` is memory in bytes."""

from __future__ import annotations

NS_PER_S = 1_000_000_000
MIB = 1024**2
GIB = 1024**3

MAX_SECONDS = 1e8
"""The longest duration that a file or a message may contain: three years. Sums of many such stay far below 2**62 ns."""


def to_ns(seconds: float) -> int:
    """Seconds to integer nanoseconds, rounded to the nearest."""
    return round(seconds * NS_PER_S)


def to_s(nanoseconds: int) -> float:
    """Integer nanoseconds to seconds."""
    return nanoseconds / NS_PER_S


def gib(amount_bytes: int) -> str:
    """An amount of bytes as text in GiB, such as "1.50 GiB"."""
    return f"{amount_bytes / GIB:.2f} GiB"
