"""Histograms of lags, small enough to be part of a message. A job reports its lags so that users can judge its accuracy."""

from __future__ import annotations

import math
from collections.abc import Mapping

from emulator_runtime.domain.errors import InputError

BUCKETS_PER_DECADE = 24
FIRST_EDGE_NS = 1_000
_DECADES = 8
_LAST = BUCKETS_PER_DECADE * _DECADES + 1
_OFFSET = 1 - BUCKETS_PER_DECADE * math.log10(FIRST_EDGE_NS)


def upper_edge_ns(bucket: int) -> float:
    """Upper edge of a bucket: 1 us for bucket 0, 10% more for each next one up to 100 s; the last bucket has no edge."""
    return math.inf if bucket >= _LAST else FIRST_EDGE_NS * 10 ** (bucket / BUCKETS_PER_DECADE)


class LagHistogram:
    """A histogram of lags (integer nanoseconds); buckets are 10% wide from 1 us to 100 s.

    Count, total and maximum are exact.
    """

    def __init__(self) -> None:
        self.count = 0
        self.total_ns = 0
        self.max_ns = 0
        self._buckets: dict[int, int] = {}

    def add(self, lag_ns: int) -> None:
        """Add one lag."""
        bucket = min(_LAST, int(BUCKETS_PER_DECADE * math.log10(lag_ns) + _OFFSET)) if lag_ns >= FIRST_EDGE_NS else 0
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        self.count += 1
        self.total_ns += lag_ns
        if lag_ns > self.max_ns:
            self.max_ns = lag_ns

    def quantile_ns(self, share: float) -> float:
        """An upper bound, at most 10% too high, of the lag below which `share` (0 to 1) of all waits stayed; 0 if empty."""
        wanted, seen = share * self.count, 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return min(upper_edge_ns(bucket), self.max_ns)
        return 0.0

    def merge(self, other: LagHistogram) -> None:
        """Add the lags of `other`."""
        for bucket, count in other._buckets.items():
            self._buckets[bucket] = self._buckets.get(bucket, 0) + count
        self.count += other.count
        self.total_ns += other.total_ns
        self.max_ns = max(self.max_ns, other.max_ns)

    def to_json(self) -> dict[str, object]:
        """The input of `from_json`: the exact values and the buckets that aren't empty."""
        buckets = {str(bucket): count for bucket, count in sorted(self._buckets.items())}
        return {"max_ns": self.max_ns, "total_ns": self.total_ns, "buckets": buckets}

    @classmethod
    def from_json(cls, data: object, place: str = "lags") -> LagHistogram:
        """The histogram that another process wrote with `to_json`. Raises InputError naming `place` and the field."""
        fields = _mapping(data, place)
        histogram = cls()
        for name, count in _mapping(fields.get("buckets"), f"{place}.buckets").items():
            if not (name.isascii() and name.isdigit() and int(name) <= _LAST):
                raise InputError(f"{place}.buckets", f"no bucket {name!r}; they are numbered 0 to {_LAST}")
            histogram._buckets[int(name)] = _whole(count, f"{place}.buckets.{name}")
        histogram.count = sum(histogram._buckets.values())
        histogram.total_ns = _whole(fields.get("total_ns"), f"{place}.total_ns")
        histogram.max_ns = _whole(fields.get("max_ns"), f"{place}.max_ns")
        return histogram


def _mapping(data: object, place: str) -> Mapping[str, object]:
    if not isinstance(data, dict) or not all(isinstance(name, str) for name in data):
        raise InputError(place, f"must be an object, got {type(data).__name__}")
    return data


def _whole(data: object, place: str) -> int:
    if not isinstance(data, int) or isinstance(data, bool) or data < 0:
        raise InputError(place, f"must be a whole number >= 0, got {data!r}")
    return data
