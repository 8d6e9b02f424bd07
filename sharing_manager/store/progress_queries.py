"""Reads the progress of jobs from Redis, and decides when the answer can't be trusted.

An answer that is too low makes a job repeat steps. Redis lacks progress in two cases: after it lost data, until the nodes
have sent it again; and while it refuses writes, because the nodes can't send it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import redis

from emulator_runtime.domain.units import NS_PER_S
from sharing_manager.store.client import Client
from sharing_manager.store.entries import PROGRESS
from sharing_manager.store.redis_errors import StoreUnavailableError, translated

SETTLE_S = 15.0
"""How long Redis isn't trusted after its start, or after it refused writes (host seconds). The longest pause between a
node's attempts is 5 s, so by then each node has connected and sent the progress of its jobs."""


class ProgressQuery(Protocol):
    """Reads the progress of jobs; RedisProgressQuery reads it from a real Redis."""

    def __call__(self, job_keys: list[str], /) -> list[int | None]:
        """The completed steps for each job key; None for a key that Redis doesn't know. Raises StoreUnavailableError."""
        ...

    def distrust(self) -> None:
        """Redis refuses writes: don't trust it for a while. May be called in any thread."""
        ...


class RedisProgressQuery:
    """A ProgressQuery for one thread; `distrust` may be called in any."""

    def __init__(self, client: Client, place: str, now_ns: Callable[[], int], *, settle_s: float | None = None) -> None:
        self._client, self._place, self._now_ns = client, place, now_ns
        self._settle_s = SETTLE_S if settle_s is None else settle_s
        self._refused_ns: int | None = None

    def __call__(self, job_keys: list[str], /) -> list[int | None]:
        try:
            with translated(self._place):
                self._check_settled()
                scores = self._scores(job_keys)
        except BaseException:
            self._client.connection_pool.disconnect()  # the next attempt connects to the current primary
            raise
        return [None if score is None else int(float(score)) for score in scores]

    def distrust(self) -> None:
        self._refused_ns = self._now_ns()

    def _check_settled(self) -> None:
        wait = "jobs wait until the nodes have sent their progress again"
        uptime_s = self._uptime_s()
        if uptime_s is not None and uptime_s < self._settle_s:
            raise StoreUnavailableError(
                self._place, "young", f"it started {uptime_s} s ago and may have lost data: {wait}"
            )
        if self._refused_ns is not None and self._now_ns() - self._refused_ns < self._settle_s * NS_PER_S:
            raise StoreUnavailableError(self._place, "settling", f"it refused writes a moment ago: {wait}")

    def _uptime_s(self) -> int | None:
        """None if the configured user may not run INFO."""
        try:
            return int(self._client.info("server")["uptime_in_seconds"])
        except (redis.ResponseError, KeyError):
            return None

    def _scores(self, job_keys: list[str]) -> Any:
        """Read the scores. ZADD with XX and GT 0 changes nothing, but fails whenever Redis would refuse a node's
        progress."""
        pipeline = self._client.pipeline(transaction=True)
        pipeline.execute_command("ZADD", PROGRESS, "XX", "GT", 0, job_keys[0])
        pipeline.execute_command("ZMSCORE", PROGRESS, *job_keys)
        try:
            return pipeline.execute()[1]
        except (redis.ResponseError, redis.exceptions.BusyLoadingError):
            self.distrust()
            raise
