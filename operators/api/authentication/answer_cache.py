"""Answers that hold for a short time, so that a page with ten requests asks the API server once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from emulator_runtime.domain.units import to_ns

K = TypeVar("K")
V = TypeVar("V")


class Cache(Generic[K, V]):
    """At most `most` answers; the one that was put longest ago goes first. `now_ns`: a monotonic clock."""

    def __init__(self, now_ns: Callable[[], int], most: int) -> None:
        self._now_ns, self._most = now_ns, most
        self._items: OrderedDict[K, tuple[int, V]] = OrderedDict()

    def get(self, key: K) -> tuple[V] | None:
        """The answer in a tuple of one (it may be None itself); None: there is none, or it is too old."""
        found = self._items.get(key)
        if found is None or found[0] <= self._now_ns():
            return None
        return (found[1],)

    def put(self, key: K, value: V, lasts_s: float) -> None:
        self._items.pop(key, None)
        self._items[key] = self._now_ns() + to_ns(lasts_s), value
        while len(self._items) > self._most:
            self._items.popitem(last=False)
