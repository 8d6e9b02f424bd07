"""Units: seconds as float end in `_s`, integer nanoseconds in `_ns`, memory is bytes in `_bytes`."""

from __future__ import annotations

NS_PER_S = 1_000_000_000
MIB = 1024**2
GIB = 1024**3

MAX_SECONDS = 1e8
"""The longest time that a file or a message may name: three years, so that sums of many stay far below 2**62 ns."""


def to_ns(seconds: float) -> int:
    """Seconds to integer nanoseconds, rounded to the nearest."""
    return round(seconds * NS_PER_S)


def to_s(nanoseconds: int) -> float:
    """Integer nanoseconds to seconds."""
    return nanoseconds / NS_PER_S


def gib(amount_bytes: int) -> str:
    """Bytes as a short text in GiB, as people say them."""
    return f"{amount_bytes / GIB:.2f} GiB"
