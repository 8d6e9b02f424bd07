"""A Redis client with time-outs. It never repeats a command by itself."""

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
    """The URL for messages: without user, password and options."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class Client(Protocol):
    """The part of redis-py's client that is used here. Commands go through `execute_command`, because redis-py's own
    methods have no precise types."""

    connection_pool: Any

    def execute_command(self, *command: str | int) -> Any: ...
    def pipeline(self, transaction: bool = True) -> Any: ...  # noqa: FBT001, FBT002 (redis-py's signature)
    def info(self, section: str | None = None) -> Any: ...
    def close(self) -> None: ...


def client_of(url: str, variable: str, *, on_connect: Callable[[Any], None] | None = None) -> Client:
    """A client that connects at its first command. The URL is redis://, rediss:// (TLS) or unix://, as redis-py's
    `from_url` reads it.

    It never repeats a command by itself, since only the caller knows whether that is safe. `on_connect` is called with each
    new connection, instead of the connection's own `on_connect`. Raises InputError for an invalid URL.
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
        client.connection_pool.make_connection()  # doesn't connect, but refuses unknown options
        return client
    except (ValueError, TypeError, redis.RedisError) as error:
        raise InputError(variable, f"{place_of(url)!r} is not a Redis URL (redis://host:6379/0): {error}") from error
