"""Units of all names: `_s` is seconds (float), `_ns` is nanoseconds (int), `_bytes` is memory in bytes."""

from __future__ import annotations

import re
from fractions import Fraction

NS_PER_S = 1_000_000_000
MIB = 1024**2
GIB = 1024**3

MAX_SECONDS = 1e8
"""The longest duration that a file or a message may contain: three years. Sums of many such stay far below 2**62 ns."""
MAX_UNIT_NS = 600 * NS_PER_S
"""The longest demand for a shared resource that any setting allows: others queue behind it until it ends, even if its own job
ends earlier. A demand may be ready that far ahead, since it may queue behind one of that length."""
POOL_UNIT_NS = 10 * NS_PER_S
"""The longest one on a pool's shared devices, where nothing else is said: its tenants don't know each other."""


def to_ns(seconds: float) -> int:
    """Seconds to integer nanoseconds, rounded to the nearest."""
    return round(seconds * NS_PER_S)


def to_s(nanoseconds: int) -> float:
    """Integer nanoseconds to seconds."""
    return nanoseconds / NS_PER_S


def gib(amount_bytes: int) -> str:
    """An amount of bytes as text in GiB, such as "1.50 GiB"."""
    return f"{amount_bytes / GIB:.2f} GiB"


_DURATION = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)(ns|us|ms|s|m|h)", re.ASCII)
_UNITS_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": NS_PER_S, "m": 60 * NS_PER_S, "h": 3600 * NS_PER_S}


def read_duration_ns(text: str) -> int | None:
    """Nanoseconds of a time such as 80ms or 1.5s; None if it is none."""
    match = _DURATION.fullmatch(text)
    return round(Fraction(match[1]) * _UNITS_NS[match[2]]) if match else None
