"""Translates redis-py's errors into one line each that says what to do. No other module knows these errors.

None of them ends the manager. Events wait in the outbox and every attempt is repeated, because each problem can be solved
from outside while the manager runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import redis

from emulator_runtime.domain.errors import ManagerUnavailableError


class StoreUnavailableError(ManagerUnavailableError):
    """Redis is unavailable, or refuses a command. `kind` is the kind of problem; each kind is reported once."""

    def __init__(self, place: str, kind: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}")
        self.kind = kind


class StreamMovedError(Exception):
    """The stream's newest id isn't the one of the last confirmed write: compare positions before the next write."""


MEMORY, PERMISSION = "memory", "permission"
"""Kinds of problems that need more than waiting."""
_BY_PREFIX = {
    "WRONGPASS": (
        "auth",
        "it refuses the user or password: correct them in the URL (redis://user:password@host:6379/0)",
    ),
    "NOAUTH": ("auth", "it wants a password: put it in the URL (redis://:password@host:6379/0)"),
    "NOPERM": (
        PERMISSION,
        "its user may not run this command: allow XADD, XTRIM, XINFO, XPENDING, ZADD, SADD, INFO on emugpu:*",
    ),
    "READONLY": ("read-only", "it is a read-only replica: give the address of the primary, or wait for the fail-over"),
    "MASTERDOWN": ("read-only", "it is a replica that has lost its primary: wait for the fail-over"),
    "OOM": (MEMORY, "it has no memory left (maxmemory): raise it, or lower EMUGPU_MANAGER_STREAM_LENGTH"),
    "MISCONF": ("disk", "it can't write its own files: look into its log, it is out of disk or may not write there"),
    "NOREPLICAS": ("replicas", "it has fewer replicas than it wants (min-replicas-to-write): wait for them"),
    "LOADING": ("loading", "it is still reading its files: wait"),
    "WRONGTYPE": ("type", "one of the keys emugpu:* holds something else: move it away or use another database"),
    "MOVED": (
        "cluster",
        "it is a Redis Cluster, whose shards can't share a transaction: use one primary with replicas",
    ),
    "CROSSSLOT": (
        "cluster",
        "it is a Redis Cluster, whose shards can't share a transaction: use one primary with replicas",
    ),
    "CLUSTERDOWN": (
        "cluster",
        "it is a Redis Cluster, whose shards can't share a transaction: use one primary with replicas",
    ),
}
_BY_CLASS: tuple[tuple[type[Exception], str], ...] = (
    (redis.exceptions.BusyLoadingError, "LOADING"),
    (redis.exceptions.AuthenticationError, "WRONGPASS"),
    (redis.exceptions.ReadOnlyError, "READONLY"),
    (redis.exceptions.NoPermissionError, "NOPERM"),
    (redis.exceptions.OutOfMemoryError, "OOM"),
    (redis.exceptions.MovedError, "MOVED"),
    (redis.exceptions.MasterDownError, "MASTERDOWN"),
    (redis.exceptions.ClusterDownError, "CLUSTERDOWN"),
)
"""For these errors, redis-py removes the first word of the server's answer."""
_IN_PIPELINE = "of pipeline caused error: "
_SMALLER_ID = "equal or smaller"


def explain(place: str, error: Exception) -> StoreUnavailableError:
    """The error as one line. `place` is the URL without its password."""
    text = " ".join(str(error).rpartition(_IN_PIPELINE)[2].split())
    word = next((word for cls, word in _BY_CLASS if isinstance(error, cls)), "")
    if (word == "WRONGPASS" and "NOAUTH" in text) or "Authentication required" in text:
        word = "NOAUTH"
    problem = _BY_PREFIX.get(word or text.partition(" ")[0])
    if problem is not None:
        return StoreUnavailableError(place, *problem)
    if isinstance(error, redis.TimeoutError | TimeoutError):
        return StoreUnavailableError(
            place, "timeout", "it doesn't answer in time: look whether it hangs or is overloaded"
        )
    if isinstance(error, redis.ConnectionError | OSError):
        return StoreUnavailableError(place, "away", f"it can't be reached ({text}): start it, or correct the address")
    if "syntax error" in text or "unknown command" in text:
        return StoreUnavailableError(place, "old", f"it doesn't know a command ({text}): Redis 6.2 or later is needed")
    return StoreUnavailableError(place, text, f"it answers {text!r}")


@contextlib.contextmanager
def translated(place: str) -> Iterator[None]:
    """Translate errors of redis-py into StoreUnavailableError, or into StreamMovedError if Redis refused an id."""
    try:
        yield
    except (redis.RedisError, redis.exceptions.RedisClusterException, OSError) as error:
        if isinstance(error, redis.ResponseError) and _SMALLER_ID in str(error):
            raise StreamMovedError(str(error)) from error
        raise explain(place, error) from error
