"""A client of Redis with deadlines that never repeats a command by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from emulator_runtime.domain.errors import InputError

SOCKET_TIMEOUT_S = 2.0


def place_of(url: str) -> str:
    """The URL as it may be shown: without user, password and options."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class Client(Protocol):
    """The part of redis-py's client that is used here; its commands by their own names have no types to rely on."""

    connection_pool: Any

    def execute_command(self, *command: str | int) -> Any: ...
    def pipeline(self, transaction: bool = True) -> Any: ...  # noqa: FBT001, FBT002 (redis-py's signature)
    def info(self, section: str | None = None) -> Any: ...
    def close(self) -> None: ...


def client_of(url: str, variable: str, *, on_connect: Callable[[Any], None] | None = None) -> Client:
    """A client that has not connected yet: redis://, rediss:// (TLS) or unix://, as redis-py's `from_url` reads it.

    It never repeats a command by itself: whether that is right only the caller knows. `on_connect` is called with each
    new connection, instead of its own method of that name. Raises InputError for the URL.
    """
    options = {} if url.startswith("unix:") else {"socket_keepalive": True}
    try:
        client: Client = redis.Redis.from_url(
            url,
            decode_responses=True,
            protocol=2,
            socket_timeout=SOCKET_TIMEOUT_S,
            socket_connect_timeout=SOCKET_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
            redis_connect_func=on_connect,
            **options,
        )
        client.connection_pool.make_connection()  # connects nothing, but refuses options that there aren't
        return client
    except (ValueError, TypeError, redis.RedisError) as error:
        raise InputError(variable, f"{place_of(url)!r} is not a Redis URL (redis://host:6379/0): {error}") from error
