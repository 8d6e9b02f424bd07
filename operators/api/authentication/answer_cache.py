"""Answers that stay valid for a short time, so that a page with ten requests asks the API server once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from emulator_runtime.domain.units import to_ns

K = TypeVar("K")
V = TypeVar("V")


class Cache(Generic[K, V]):
    """Keeps at most `most` answers and drops the oldest first. `now_ns`: a monotonic clock."""

    def __init__(self, now_ns: Callable[[], int], most: int) -> None:
        self._now_ns, self._most = now_ns, most
        self._items: OrderedDict[K, tuple[int, V]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The answer while it is valid."""
        expires_ns, answer = self._items.get(key, (0, None))
        return answer if expires_ns > self._now_ns() else None

    def last(self, key: K) -> V | None:
        """The answer, also after it has expired."""
        return self._items[key][1] if key in self._items else None

    def put(self, key: K, value: V, valid_s: float) -> None:
        self._items.pop(key, None)
        self._items[key] = self._now_ns() + to_ns(valid_s), value
        while len(self._items) > self._most:
            self._items.popitem(last=False)

    def drop(self, key: K) -> None:
        """Forget the answer, if there is one."""
        self._items.pop(key, None)
