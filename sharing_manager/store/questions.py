"""The question to Redis how far jobs have come, and when its answer may not be believed.

An answer that is too low sends a job back to steps that it has done. Redis knows too little after it lost its data, until
the nodes have told it again, and while it refuses writes, because then nobody can tell it more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import redis

from emulator_runtime.domain.units import NS_PER_S
from sharing_manager.store.client import Client
from sharing_manager.store.entries import PROGRESS
from sharing_manager.store.troubles import StoreAwayError, translated

SETTLE_S = 15.0
"""So long after its start, or after it refused writes, Redis isn't believed (host seconds): by then each node, whose longest
pause between attempts is 5 s, has connected and told it how far its jobs have come."""


class Ask(Protocol):
    """How a question is put; RedisQuestion puts it to a real Redis."""

    def __call__(self, job_keys: list[str], /) -> list[int | None]:
        """Steps done by job key; None: Redis doesn't know the key. Raises StoreAwayError."""
        ...

    def distrust(self) -> None:
        """Redis refuses writes at this moment: don't believe it for a while. From any thread."""
        ...


class RedisQuestion:
    """An Ask for one thread, `distrust` for any."""

    def __init__(self, client: Client, place: str, now_ns: Callable[[], int], *, settle_s: float | None = None) -> None:
        self._client, self._place, self._now_ns = client, place, now_ns
        self._settle_s = SETTLE_S if settle_s is None else settle_s
        self._refused_ns: int | None = None

    def __call__(self, job_keys: list[str], /) -> list[int | None]:
        try:
            with translated(self._place):
                self._must_be_settled()
                scores = self._scores(job_keys)
        except BaseException:
            self._client.connection_pool.disconnect()  # the next attempt looks for the primary anew
            raise
        return [None if score is None else int(float(score)) for score in scores]

    def distrust(self) -> None:
        self._refused_ns = self._now_ns()

    def _must_be_settled(self) -> None:
        wait = "jobs wait until the nodes have told it how far they are"
        uptime_s = self._uptime_s()
        if uptime_s is not None and uptime_s < self._settle_s:
            raise StoreAwayError(self._place, "young", f"it started {uptime_s} s ago and may have lost data: {wait}")
        if self._refused_ns is not None and self._now_ns() - self._refused_ns < self._settle_s * NS_PER_S:
            raise StoreAwayError(self._place, "settling", f"it refused writes a moment ago: {wait}")

    def _uptime_s(self) -> int | None:
        """None where our user may not ask, so that it can't be told."""
        try:
            return int(self._client.info("server")["uptime_in_seconds"])
        except (redis.ResponseError, KeyError):
            return None

    def _scores(self, job_keys: list[str]) -> Any:
        """ZADD with XX and GT 0 changes nothing, but Redis refuses it whenever it would refuse to hear of progress."""
        pipeline = self._client.pipeline(transaction=True)
        pipeline.execute_command("ZADD", PROGRESS, "XX", "GT", 0, job_keys[0])
        pipeline.execute_command("ZMSCORE", PROGRESS, *job_keys)
        try:
            return pipeline.execute()[1]
        except (redis.ResponseError, redis.exceptions.BusyLoadingError):
            self.distrust()
            raise
